"""What is found, and how values in a dump are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["error", "warning"]

Tree = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One setting of the Envoy.

    `where` names the object that holds it, `setting` is its path there, `says` what it is and does,
    `mend` what to write instead. An error undoes weights or cuts requests in ordinary operation, a
    warning does so when something goes wrong.
    """

    level: Level
    where: str
    setting: str
    says: str
    mend: str


def branch(tree: Any, *path: str) -> Tree:
    """The object under `path`; empty where it, or one before it, is missing."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else {}


def items(tree: Any, *path: str) -> list[Tree]:
    """The objects of the list under `path`."""
    *before, last = path
    found = branch(tree, *before).get(last)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def text(tree: Tree, key: str) -> str:
    """The string under `key`; empty where it is missing."""
    found = tree.get(key)
    return found if isinstance(found, str) else ""


def duration(tree: Tree, key: str) -> float | None:
    """The duration under `key` in seconds; None where it is missing."""
    try:
        return float(text(tree, key).removesuffix("s"))
    except ValueError:
        return None


def number(tree: Tree, key: str) -> float | None:
    """The number under `key`; a 64-bit one is written as a string. None where it is missing."""
    try:
        return float(tree[key])
    except (KeyError, TypeError, ValueError):
        return None


def number_or(tree: Tree, key: str, default: float) -> float:
    """The number under `key`, or Envoy's default."""
    found = number(tree, key)
    return default if found is None else found


def said(value: float | None, default: str, unit: str = "") -> str:
    """A value as findings tell it; one that is missing is Envoy's default."""
    return f"not set, which is {default}{unit}" if value is None else f"{value:g}{unit}"
