"""The agent's own page and its documentation name the same metrics."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import (
    EngineReading,
    EngineState,
    HardwareReading,
    SourceReading,
    Status,
)
from headrace_agent.heartbeat.build import Identity
from headrace_agent.heartbeat.stream import ControllerStream, Handlers
from headrace_agent.service.metrics import AgentMetrics, build_page, render
from headrace_agent.service.node import Node
from headrace_agent.service.reload import Reloader
from tests.support.agent_sources import Fakes
from tests.support.clock import FakeClock
from tests.unit.agent.service.test_watch import SETTINGS

DOCS = Path(__file__).parents[4] / "docs" / "metrics.md"
DCGM = SourceReading("dcgm", Status.OK, 999.0)
ROW = re.compile(r"^\| `(headrace_agent_\w+)` \|([^|]*)\|", re.MULTILINE)


def documented() -> dict[str, set[str]]:
    """Names -> labels, from the agent's table."""
    table = DOCS.read_text(encoding="utf-8").split("## Agent", 1)[1]
    return {name: set(labels.replace(",", " ").split()) for name, labels in ROW.findall(table)}


def page_of(*sources_of_c1: SourceReading) -> str:
    """A page on which everything has a sample."""
    clock, mishaps, fakes = FakeClock(), Mishaps(), Fakes("c1", "c2")
    sources = fakes.build(SETTINGS, clock, fakes.on_event, fakes.on_xid, mishaps)
    node = Node(SETTINGS, Identity("n", "s", "0", 1), sources, clock, mishaps)
    fakes.engines["c1"].read(1, clock.now())
    fakes.engines["c2"].now = EngineReading(EngineState.SERVING, missing=("http_requests_total",))
    fakes.hardware.now[(0,)] = HardwareReading(sources=sources_of_c1)
    mishaps.note("part", KeyError("x"))
    handlers = Handlers(lambda *_: None, lambda *_: None, lambda *_: None)
    streams = {
        str(each.address): ControllerStream(each, node, handlers, clock) for each in SETTINGS.controllers
    }
    reloader = Reloader(None, asyncio.Event(), clock, mishaps)
    own = AgentMetrics(node, streams, clock, mishaps, reloader, lambda: "0123456789ab")
    return render(build_page(own)).decode()


def served() -> dict[str, set[str]]:
    """Names -> labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page_of(DCGM)):
        for sample in family.samples:
            if sample.name.startswith("headrace_"):
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture
async def page() -> dict[str, set[str]]:
    return served()


async def test_every_metric_of_the_page_is_documented_and_no_other(page: dict[str, set[str]]) -> None:
    assert page == documented()


async def test_the_fixed_ones_are_there(page: dict[str, set[str]]) -> None:
    """Both tables empty would agree too."""
    assert {"headrace_agent_events_dropped_total", "headrace_agent_source_failures_total"} <= page.keys()


@pytest.mark.parametrize(("spare", "shown"), [(True, {}), (False, {"nvml": "0.0"})])
async def test_a_stand_in_that_nobody_needs_has_not_failed(spare: bool, shown: dict[str, str]) -> None:
    nvml = SourceReading("nvml", Status.NO_DATA, detail="no NVML library on this host", spare=spare)
    lines = re.findall(
        r'^headrace_agent_source_ok\{cell="c1",source="(\w+)"\} (\S+)$', page_of(DCGM, nvml), re.M
    )
    assert {name: value for name, value in lines if name != "engine"} == {"dcgm": "1.0", **shown}
