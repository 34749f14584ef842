"""What a node says while one of its collectors cannot: the others' figures, and whose are missing."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import (
    EngineFacts,
    EngineReading,
    EngineState,
    Gpu,
    HardwareReading,
    Model,
    SourceReading,
    Status,
    Totals,
)
from headrace_agent.heartbeat.build import Identity
from headrace_agent.service.node import Node
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.support.agent_sources import Fakes
from tests.support.clock import FakeClock
from tests.unit.agent.service.test_watch import SETTINGS

READING = EngineReading(
    EngineState.SERVING,
    signals={"queue_depth": 3.0},
    in_flight=3,
    totals=Totals(ok=5),
    serving_since=900.0,
    facts=EngineFacts("vllm", "0.32.0", (Model("m"),)),
    source=SourceReading("engine", Status.OK, 999.0),
)


class Desk:
    """A node of two cells, both of which serve."""

    def __init__(self) -> None:
        self.clock, self.fakes, self.mishaps = FakeClock(), Fakes("c1", "c2"), Mishaps()
        sources = self.fakes.build(SETTINGS, self.clock, self.fakes.on_event, self.fakes.on_xid, self.mishaps)
        self.node = Node(SETTINGS, Identity("n", "s", "0", 1), sources, self.clock, self.mishaps)
        for engine in self.fakes.engines.values():
            engine.now = READING
        self.fakes.hardware.now[(0,)] = HardwareReading(gpus=(Gpu("GPU-a"),))

    def telemetry(self) -> pb.Telemetry:
        return self.node.telemetry(self.clock.advance(0.5))

    def hello(self) -> pb.Hello:
        return self.node.hello(self.clock.advance(0.5))


@pytest.fixture
async def desk() -> Desk:
    return Desk()


def broken(*args: Any) -> Any:
    raise OverflowError("cannot convert float infinity to integer")


async def test_an_engine_whose_reading_breaks_costs_its_own_figures_only(desk: Desk) -> None:
    """One page once ended the agent, and with it every cell of the node, at every start."""
    before = desk.telemetry()
    desk.fakes.engines["c1"].reading = broken  # type: ignore[method-assign, assignment]
    with capture_logs() as logs:
        for _ in range(3):
            bad, good = desk.telemetry().cells
    assert good == before.cells[1] or good.engine_state == pb.ENGINE_STATE_SERVING
    assert good.signals.queue_depth == 3.0
    assert bad.engine_state == pb.ENGINE_STATE_SERVING, "the state is known all the same"
    assert bad.serving_ms > 0
    assert not bad.signals.HasField("queue_depth")
    assert not bad.HasField("in_flight")
    assert not bad.HasField("requests")
    assert bad.sources[0].status == pb.SOURCE_STATUS_FAILED
    assert "OverflowError: cannot convert float infinity" in bad.sources[0].detail
    assert len(logs) == 1
    assert desk.mishaps.counts == {"reading of c1: engine": 3}


async def test_the_state_that_is_given_on_is_the_engines_own(desk: Desk) -> None:
    """An engine that dies while its figures cannot be read must not be reported as serving."""
    desk.telemetry()
    engine = desk.fakes.engines["c1"]
    engine.reading = broken  # type: ignore[method-assign, assignment]
    engine.now = EngineReading(EngineState.DOWN)
    bad = desk.telemetry().cells[0]
    assert bad.engine_state == pb.ENGINE_STATE_DOWN
    assert bad.serving_ms == 0


async def test_facts_that_were_known_stay_known(desk: Desk) -> None:
    """A Hello without models would take the cell out of its pool."""
    before = desk.hello()
    desk.fakes.engines["c1"].reading = broken  # type: ignore[method-assign, assignment]
    desk.fakes.hardware.reading = broken  # type: ignore[method-assign, assignment]
    assert desk.hello() == before


async def test_hardware_and_paths_that_break_cost_their_own_figures_only(desk: Desk) -> None:
    desk.fakes.hardware.reading = broken  # type: ignore[method-assign, assignment]
    desk.fakes.paths.readings = broken  # type: ignore[method-assign, assignment]
    told = desk.telemetry()
    assert [cell.signals.queue_depth for cell in told.cells] == [3.0, 3.0]
    assert [(each.name, each.status) for each in told.cells[0].sources] == [
        ("engine", pb.SOURCE_STATUS_OK),
        ("hardware", pb.SOURCE_STATUS_FAILED),
    ]
    assert list(told.paths) == []


async def test_what_breaks_and_mends_is_said_again(desk: Desk) -> None:
    engine = desk.fakes.engines["c1"]
    whole = engine.reading
    with capture_logs() as logs:
        for reading in (broken, whole, broken):
            engine.reading = reading  # type: ignore[method-assign, assignment]
            desk.telemetry()
    assert [line["event"] for line in logs] == [
        "unexpected error, contained",
        "well again",
        "unexpected error, contained",
    ]


async def test_a_hello_is_the_same_message_until_a_fact_changes(desk: Desk) -> None:
    first = desk.hello()
    assert desk.hello() is first
    desk.fakes.hardware.now[(0,)] = HardwareReading(gpus=(Gpu("GPU-b"),))
    second = desk.hello()
    assert second.cells[0].gpus[0].uuid == "GPU-b"
    assert first.cells[0].gpus[0].uuid == "GPU-a"


async def test_a_hello_and_the_beat_after_it_are_made_of_one_reading(desk: Desk) -> None:
    asked = 0
    whole = desk.fakes.engines["c1"].reading

    def count(now: float) -> EngineReading:
        nonlocal asked
        asked += 1
        return whole(now)

    desk.fakes.engines["c1"].reading = count  # type: ignore[method-assign]
    now = desk.clock.advance(1.0)
    desk.node.hello(now)
    desk.node.telemetry(now)
    assert asked == 1
    desk.node.telemetry(desk.clock.advance(0.001))
    assert asked == 2
