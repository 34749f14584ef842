"""The Grafana dashboards: as their source writes them, and asking only for what there is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from deploy import write

from headrace_controller.lifecycle import CellState
from headrace_shared.signals import NAMES
from tests.support.monitoring import (
    DASHBOARDS,
    LABELS_OF_PROMETHEUS,
    dashboards,
    labels_of,
    questions,
    variables,
)
from tests.support.promql import grouped, selectors

BOARDS = dashboards()
OF_GRAFANA = {"__rate_interval", "__url_time_range", "__value", "__field"}


def test_the_files_are_what_their_source_gives() -> None:
    """Run `make deploy-files` after a change."""
    made = write.files()
    stale = [str(path) for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run make deploy-files and commit"
    assert set(DASHBOARDS) <= set(made)


@pytest.mark.parametrize("asked", questions(), ids=lambda asked: f"{asked.board}: {asked.panel}")
def test_a_query_asks_only_for_what_there_is(asked: Any) -> None:
    found, has = selectors(asked.expr), set[str]()
    assert found
    for each in found:
        known = labels_of(each.name)
        assert known is not None, f"{each.name} is not documented"
        assert each.labels <= known | LABELS_OF_PROMETHEUS, each
        has |= known
    assert grouped(asked.expr) <= has | LABELS_OF_PROMETHEUS


@pytest.mark.parametrize("name", BOARDS)
def test_what_is_filled_in_is_a_variable_of_the_dashboard(name: str) -> None:
    board = BOARDS[name]
    own = {each["name"] for each in board["templating"]["list"]}
    exprs = [asked.expr for asked in questions() if asked.board == name]
    used = set(re.findall(r"\$\{?(\w+)", " ".join(exprs)))
    assert used <= own | OF_GRAFANA
    # The choice of a region holds for every query, and a variable that nothing uses is none.
    assert own - {"datasource"} <= used
    for selector, label in variables(board).values():
        (asked,) = selectors(selector)
        known = (labels_of(asked.name) or set()) | LABELS_OF_PROMETHEUS
        assert asked.labels | {label} <= known


@pytest.mark.parametrize("name", BOARDS)
def test_a_panel_has_a_unit_a_place_and_a_source_that_can_be_chosen(name: str) -> None:
    board = BOARDS[name]
    places: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        at = panel["gridPos"]
        area = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not area & places, f"{panel['title']} lies over another"
        assert max(x for x, _ in area) < 24
        places |= area
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        if panel["type"] != "table":
            assert panel["fieldConfig"]["defaults"]["unit"]
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [{"value": None}])
        assert steps[0]["value"] is None
        assert [step["value"] for step in steps[1:]] == sorted(step["value"] for step in steps[1:])


def links(thing: Any) -> list[str]:
    """The addresses of all links within."""
    if isinstance(thing, dict):
        own = [thing["url"]] if isinstance(thing.get("url"), str) and thing["url"] else []
        return own + [url for value in thing.values() for url in links(value)]
    return [url for value in thing for url in links(value)] if isinstance(thing, list) else []


def test_dashboards_lead_to_each_other() -> None:
    by_uid = {board["uid"]: board for board in BOARDS.values()}
    reached = set()
    for board in BOARDS.values():
        assert board["links"][0]["tags"] == ["headrace"]
        assert "headrace" in board["tags"]
        for url in links(board["panels"]):
            match = re.match(r"/d/([\w-]+)\?", url)
            assert match, url
            target = by_uid[match[1]]
            own = {each["name"] for each in target["templating"]["list"]}
            assert set(re.findall(r"&var-(\w+)=", url)) <= own
            assert set(re.findall(r"\{(\w+):queryparam\}", url)) <= own
            reached.add(match[1])
    assert reached == {"headrace-site", "headrace-cell"}


def test_states_are_called_as_the_controller_calls_them() -> None:
    for board in BOARDS.values():
        for panel in board["panels"]:
            for mapping in panel.get("fieldConfig", {}).get("defaults", {}).get("mappings", []):
                named = {key: value["text"] for key, value in mapping["options"].items()}
                if len(named) > 2:
                    assert named == {str(int(state)): state.name for state in CellState}


def test_the_cells_dashboard_shows_all_ten_signals() -> None:
    shown = set(re.findall(r'signal="(\w+)"', " ".join(a.expr for a in questions() if a.board == "cell")))
    assert shown == set(NAMES)
