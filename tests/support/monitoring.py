"""The monitoring files that the repository ships, read for tests."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
RULE_TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))

LABELS_OF_PROMETHEUS = {"job", "instance", "region", "alertname", "alertstate", "severity"}
"""What the scrape config and Prometheus itself add."""
SYNTHETIC = {"up": set[str](), "ALERTS": {"site", "cell", "gateway", "kind"}}
"""Metrics that Prometheus makes."""

_ROW = re.compile(r"^\| `(headrace_\w+)` \|([^|]*)\|", re.MULTILINE)
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a dashboard; `instant` = at one moment."""

    board: str
    panel: str
    expr: str
    instant: bool


@cache
def rules() -> list[dict[str, Any]]:
    """Every rule of every file."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@cache
def recorded() -> dict[str, str]:
    """Recorded names -> expressions."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


@cache
def documented() -> dict[str, set[str]]:
    """Metric names -> labels, from docs/metrics.md."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    return {name: set(labels.replace(",", " ").split()) for name, labels in _ROW.findall(text)}


def labels_of(name: str) -> set[str] | None:
    """The labels that a metric may be asked by, besides those of LABELS_OF_PROMETHEUS; None for one that
    is neither documented, recorded nor Prometheus's own."""
    if name in SYNTHETIC:
        return SYNTHETIC[name]
    if name in recorded():
        # By the levels in its name: region_gateway_class:metric:operation.
        return set(name.split(":", 1)[0].split("_"))
    if name.startswith("process_"):
        return set()
    known = documented()
    if name in known:
        return known[name]
    base = _SUFFIX.sub("", name)
    return known[base] | {"le"} if base in known and base.endswith(("_seconds", "_ratio")) else None


@cache
def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards by file name without its ending."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS}


def questions() -> list[Asked]:
    """Every query of every panel and annotation."""
    found = []
    for board, data in dashboards().items():
        for note in data["annotations"]["list"]:
            found.append(Asked(board, f"annotation {note['name']}", note["target"]["expr"], False))
        for panel in data["panels"]:
            for target in panel.get("targets", ()):
                found.append(Asked(board, panel["title"], target["expr"], target["instant"]))
    return found


def variables(data: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """A dashboard's variables that are label values: name -> (selector, label)."""
    found = {}
    for each in data["templating"]["list"]:
        if each["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", each["definition"])
            assert match, each
            assert each["query"]["query"] == each["definition"]
            found[each["name"]] = (match[1], match[2])
    return found
