"""Panels as Grafana stores them, each from what is particular to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

DATASOURCE: Final[Json] = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "text"
STATES: Final = {
    1: ("LOADING", BLUE),
    2: ("READY", GREEN),
    3: ("DRAINING", YELLOW),
    4: ("FAILED", RED),
    5: ("TERMINATED", GREY),
}
"""headrace_cell_state: what a value is called, and its colour."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query; `legend` names its series, with {{labels}} filled in."""

    expr: str
    legend: str = "__auto"

    def target(self, ref: str, *, instant: bool = False, table: bool = False) -> Json:
        """As a panel's target `ref`."""
        made: Json = {
            "refId": ref,
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legend,
            "instant": instant,
            "range": not instant,
        }
        return made | ({"format": "table"} if table else {})


@dataclass(frozen=True, slots=True)
class Look:
    """How values are shown: Grafana's `unit`, bounds, and `limits` from where on a colour holds."""

    unit: str = "short"
    low: float | None = None
    high: float | None = None
    decimals: int | None = None
    limits: Sequence[tuple[float, str]] = ()
    names: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    links: Sequence[Json] = ()

    def defaults(self) -> Json:
        """As fieldConfig.defaults."""
        steps: list[Json] = [{"color": GREEN if self.limits else BLUE, "value": None}]
        steps += [{"color": colour, "value": value} for value, colour in self.limits]
        made: Json = {
            "unit": self.unit,
            "thresholds": {"mode": "absolute", "steps": steps},
            "color": {"mode": "thresholds"},
        }
        optional = {"min": self.low, "max": self.high, "decimals": self.decimals}
        made |= {name: value for name, value in optional.items() if value is not None}
        if self.names:
            options = {
                str(value): {"text": text, "color": colour, "index": at}
                for at, (value, (text, colour)) in enumerate(self.names.items())
            }
            made["mappings"] = [{"type": "value", "options": options}]
        if self.links:
            made["links"] = list(self.links)
        return made


SHARE: Final = Look("percentunit", 0, 1)
COUNT: Final = Look("short", 0, decimals=0)
RATE: Final = Look("reqps", 0)
SECONDS: Final = Look("s", 0)
ON_OFF: Final = Look(names={0: ("no", GREEN), 1: ("yes", RED)}, limits=[(1, RED)])
STATE: Final = Look(names=STATES)


def time_series(
    title: str, queries: Sequence[Query], look: Look, said: str = "", *, stacked: bool = False
) -> Json:
    """Lines over time; limits are drawn."""
    custom: Json = {
        "lineWidth": 1,
        "fillOpacity": 40 if stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if look.limits else "off"},
    }
    defaults = look.defaults() | {"color": {"mode": "palette-classic"}, "custom": custom}
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel(
        "timeseries", title, said, defaults, options, [q.target(*_ref(i)) for i, q in _each(queries)]
    )


def stat(title: str, query: Query, look: Look, said: str = "", *, text: str = "auto") -> Json:
    """One value now; with `text` "name" its series' name instead."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background" if look.limits else "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": text,
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    return _panel("stat", title, said, look.defaults(), options, [query.target("A", instant=True)])


def timeline(title: str, queries: Sequence[Query], look: Look, said: str = "") -> Json:
    """States over time, a band for each series."""
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.9,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    defaults = look.defaults() | {"custom": {"fillOpacity": 70, "lineWidth": 0}}
    targets = [query.target(*_ref(at)) for at, query in _each(queries)]
    return _panel("state-timeline", title, said, defaults, options, targets)


def table(
    title: str, label: str, columns: Sequence[tuple[str, Query, Look]], link: Json, said: str = ""
) -> Json:
    """A row for each value of `label`, which carries the link; a column for each query."""
    refs = [chr(ord("A") + at) for at in range(len(columns))]
    names = {f"Value #{ref}": name for ref, (name, _, _) in zip(refs, columns, strict=True)}
    overrides = [
        {"matcher": {"id": "byName", "options": name}, "properties": _properties(look)}
        for name, _, look in columns
    ]
    overrides.append(
        {
            "matcher": {"id": "byName", "options": label},
            "properties": [{"id": "links", "value": [link]}],
        }
    )
    order = {label: 0} | {name: at for at, name in enumerate(names, 1)}
    return _panel(
        "table",
        title,
        said,
        {"custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True}},
        {
            "frameIndex": 0,
            "showHeader": True,
            "cellHeight": "sm",
            "sortBy": [{"displayName": label, "desc": False}],
        },
        [
            query.target(ref, instant=True, table=True)
            for ref, (_, query, _) in zip(refs, columns, strict=True)
        ],
        overrides=overrides,
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names},
            },
        ],
    )


def _properties(look: Look) -> list[Json]:
    """The look of one column, as an override's properties."""
    defaults = look.defaults()
    kept = ("unit", "min", "max", "decimals", "thresholds", "mappings")
    made = [{"id": name, "value": defaults[name]} for name in kept if name in defaults]
    coloured = {"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}}
    return [*made, coloured] if look.limits or look.names else made


def _panel(
    kind: str, title: str, said: str, defaults: Json, options: Json, targets: Sequence[Json], **more: Any
) -> Json:
    overrides = more.pop("overrides", [])
    return {
        "type": kind,
        "title": title,
        "description": said,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": options,
        "targets": list(targets),
        **more,
    }


def _each(queries: Sequence[Query]) -> list[tuple[int, Query]]:
    return list(enumerate(queries))


def _ref(at: int) -> tuple[str]:
    return (chr(ord("A") + at),)
