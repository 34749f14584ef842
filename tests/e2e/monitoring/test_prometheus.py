"""A real Prometheus scrapes real programs: every query of every dashboard works, and an alert fires."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.monitoring.prometheus import BINARY, Prometheus, watched
from tests.support.monitoring import (
    LABELS_OF_PROMETHEUS,
    alerts,
    dashboards,
    questions,
    recorded,
    rules,
    variables,
)
from tests.support.promql import selectors

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(BINARY is None, reason="needs the package prometheus"),
    pytest.mark.asyncio(loop_scope="module"),
]

PATIENCE_S = 30.0
FIRES_WITHIN_S = 60.0
"""10 s are the alert's own."""
CHOSEN = {
    "region": ".+",
    "gateway": ".*",
    "instance": ".*",
    "site": "east",
    "cell": "east-1",
    "__rate_interval": "4s",
}
"""What the dashboards' variables are, as Grafana fills them in."""
QUIET = {
    ("cell", "Early warnings"),
    ("controller", "Learned bytes a token"),
    ("controller", "Mishaps"),
    ("fleet", "Marks and early warnings"),
    ("fleet", "annotation Alerts"),
    ("site", "annotation Alerts"),
    ("cell", "annotation Alerts"),
    ("controller", "annotation Alerts"),
    ("site", "Marks"),
}
"""Panels that have nothing to show of a region in which all is well."""
EVENTS = {"headrace_cell_early_warning", "headrace_class_bytes_per_token", "headrace_cell_member_up"}
EVENTS |= {"headrace_agent_mishaps_total", "headrace_agent_missing_families", "ALERTS"}
"""Metrics without a series while nothing of the kind happens, or without such a cell."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    async with watched(tmp_path_factory.mktemp("watched")) as made:
        yield made


def filled_in(text: str) -> str:
    """With the variables' values."""
    return re.sub(r"\$(\w+)", lambda found: CHOSEN[found[1]], text)


async def test_every_query_of_every_dashboard_is_answered(prometheus: Prometheus) -> None:
    left: dict[tuple[str, str, str], str] = {
        (asked.board, asked.panel, asked.expr): filled_in(asked.expr) for asked in questions()
    }

    async def all_answered() -> bool:
        for key, expr in list(left.items()):
            if await prometheus.ask(expr) or key[:2] in QUIET:
                del left[key]
        return not left

    await prometheus.region.until(all_answered, f"answers to {left}", PATIENCE_S)


async def test_every_variable_has_values(prometheus: Prometheus) -> None:
    for board in dashboards().values():
        for selector, label in variables(board).values():

            async def found(label: str = label, selector: str = selector) -> bool:
                asked = [("match[]", filled_in(selector))]
                return bool(await prometheus.get(f"label/{label}/values", asked))

            await prometheus.region.until(found, f"values of {label} of {board['title']}", PATIENCE_S)


async def test_metrics_and_labels_are_those_that_are_really_exported(prometheus: Prometheus) -> None:
    asked = [each.expr for each in questions()] + [rule["expr"] for rule in rules()]
    names = {each.name for expr in asked for each in selectors(expr)} - EVENTS
    real: dict[str, set[str]] = {}
    for name in names:

        async def exported(name: str = name) -> bool:
            found = await prometheus.get("series", [("match[]", name)])
            real[name] = set().union(*found)
            return bool(found)

        await prometheus.region.until(exported, f"{name} is exported by somebody", PATIENCE_S)
    for expr in asked:
        for each in selectors(expr):
            if each.name in real:
                assert each.labels <= real[each.name] | LABELS_OF_PROMETHEUS, each


async def test_all_rules_are_taken_and_nothing_fires_while_all_is_well(prometheus: Prometheus) -> None:
    groups: list[dict[str, Any]] = (await prometheus.get("rules"))["groups"]
    taken = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(taken) == set(alerts()) | set(recorded())

    async def evaluated() -> bool:
        groups = (await prometheus.get("rules"))["groups"]
        return {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}

    await prometheus.region.until(evaluated, "all rules are evaluated")

    async def calm() -> bool:
        return await prometheus.firing() == set()

    await prometheus.region.until(calm, "no alert fires")


async def test_an_alert_fires_for_a_killed_engine_and_ends_when_it_serves_again(
    prometheus: Prometheus,
) -> None:
    region, wanted = prometheus.region, ("HeadraceCellFailed", "east-1")
    await region.kill("cell east-1")

    async def fires() -> bool:
        return wanted in await prometheus.firing()

    took = await region.until(fires, "the alert fires", FIRES_WITHIN_S)
    print(f"fires after {took:.1f} s")
    expr = filled_in(dashboards()["cell"]["annotations"]["list"][0]["target"]["expr"])

    async def marked() -> bool:
        """What fires is a series a moment after it is an alert."""
        return "HeadraceCellFailed" in {each["metric"]["alertname"] for each in await prometheus.ask(expr)}

    await region.until(marked, "the alert marks the board", PATIENCE_S)
    assert [s["value"][1] for s in await prometheus.ask('headrace_cell_weight{cell="east-1"}')] == ["0"]
    await region.restart("cell east-1")

    async def over() -> bool:
        return wanted not in await prometheus.firing()

    await region.until(over, "the alert is over", FIRES_WITHIN_S)
