"""A dashboard of rows of panels, its variables and its links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.grafana.boards.panels import DATASOURCE, Json

WIDTH: Final = 24
SCHEMA: Final = 41
"""Grafana 12's; later ones take it up and migrate it."""
TAG: Final = "headrace"

ALERTS: Final[Json] = {
    "name": "Alerts",
    "datasource": DATASOURCE,
    "enable": True,
    "hide": False,
    "iconColor": "red",
    "target": {
        "refId": "Anno",
        "expr": 'ALERTS{alertname=~"Headrace.+", alertstate="firing", region=~"$region"}',
        "interval": "10s",
    },
    "titleFormat": "{{alertname}}",
    "textFormat": "{{cell}} {{site}} {{gateway}} {{instance}}",
}
"""Firing alerts, as marks in every time line."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels of one size, `across` of them side by side (0 = all), `height` units of 30 px high."""

    title: str
    height: int
    panels: Sequence[Json]
    across: int = 0


def variable(name: str, query: str, label: str, *, many: bool = True) -> Json:
    """A choice among a label's values; with `many` of several or all of them."""
    made: Json = {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name, "qryType": 1},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
        "hide": 0,
        "regex": "",
        "options": [],
        "skipUrlSync": False,
    }
    if many:
        # Also what has no such label: one region needs no name.
        made |= {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"], "selected": True}}
    return made


REGION: Final = variable("region", "label_values(headrace_cell_state, region)", "Region")
_SOURCE: Final[Json] = {
    "type": "datasource",
    "name": "datasource",
    "label": "Prometheus",
    "query": "prometheus",
    "refresh": 1,
    "multi": False,
    "includeAll": False,
    "hide": 0,
    "regex": "",
    "options": [],
    "skipUrlSync": False,
}


def link(title: str, uid: str, **variables: str) -> Json:
    """A link from a value to another dashboard, which keeps time, datasource and region; `variables` are
    set there."""
    given = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return {
        "title": title,
        "url": f"/d/{uid}?${{__url_time_range}}&${{datasource:queryparam}}&${{region:queryparam}}{given}",
        "targetBlank": False,
    }


def dashboard(uid: str, title: str, said: str, variables: Sequence[Json], rows: Sequence[Row]) -> Json:
    """The whole file."""
    return {
        "uid": uid,
        "title": title,
        "description": said,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "links": [_to_others()],
        "annotations": {"list": [ALERTS]},
        "templating": {"list": [_SOURCE, REGION, *variables]},
        "panels": _laid_out(rows),
    }


def _to_others() -> Json:
    return {
        "title": "Headrace",
        "type": "dashboards",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _laid_out(rows: Sequence[Row]) -> list[Json]:
    made: list[Json] = []
    at = 0

    def add(panel: Json, **place: Any) -> None:
        made.append({"id": len(made) + 1, "gridPos": place, **panel})

    for row in rows:
        if row.title:
            add(
                {"type": "row", "title": row.title, "collapsed": False, "panels": []}, h=1, w=WIDTH, x=0, y=at
            )
            at += 1
        across = row.across or len(row.panels)
        width = WIDTH // across
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, across)
            add(panel, h=row.height, w=width, x=column * width, y=at + line * row.height)
        at += -(-len(row.panels) // across) * row.height
    return made
