"""What a PromQL expression asks for, without a parser of its own: names, matchers, labels."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEXT = r'"(?:\\.|[^"\\])*"'
_SELECTOR = re.compile(rf"([a-zA-Z_:][\w:]*)?\{{((?:{_TEXT}|[^{{}}\"])*)\}}")
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_TEXT})")
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]|\boffset\s+\S+")
_NUMBER = re.compile(r"(?<![\w:])[\d.]+(?:e[+-]?\d+)?\b")
_NAME = re.compile(r"[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])")
_WORDS = {"and", "or", "unless", "bool", "inf", "nan", "group_left", "group_right"}


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric's name ("" where there is none) and its matchers as (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()

    @property
    def labels(self) -> set[str]:
        """The labels that it compares."""
        return {label for label, _, _ in self.matchers}


def selectors(expr: str) -> list[Selector]:
    """All selectors of an expression, with or without braces."""
    found = []
    rest = _RANGE.sub(" ", _GROUPED.sub(" ", expr))
    for name, inside in _SELECTOR.findall(rest):
        matchers = tuple((label, op, text[1:-1]) for label, op, text in _MATCHER.findall(inside))
        found.append(Selector(name, matchers))
    rest = re.sub(_TEXT, " ", _SELECTOR.sub(" ", rest))
    names = _NAME.findall(_NUMBER.sub(" ", rest))
    return found + [Selector(name) for name in names if name.lower() not in _WORDS]


def grouped(expr: str) -> set[str]:
    """The labels by which an expression groups or joins."""
    return {label for labels in _GROUPED.findall(expr) for label in re.findall(r"\w+", labels)}
