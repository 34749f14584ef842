"""The whole slow loop, ingest to plan, under a clock that the test owns: no sockets, no waiting."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from headrace_controller.control.confirmation import Question
from headrace_controller.control.keeper import Keeper
from headrace_controller.control.kept_fleet import KeptFleet, KeptFleetStore
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import Answer, CellState
from headrace_controller.pressure import Pressures
from headrace_controller.projection import Endpoints, Plan
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config
from tests.support.clock import FakeClock

SETTINGS = "gateways: [{id: gw, host: 127.0.0.1}]\n"
TICK_S = 0.05


class Outside:
    """Remembers what the loop did to the world, and plays the engines that it asks."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.asked: list[str] = []
        self.timeouts: list[float] = []
        self.sent: list[tuple[str, pb.ControllerMessage]] = []

    def publish(self, plan: Plan) -> None:
        self.plans.append(plan)

    def ask_engine(self, cell_id: str, question: Question, timeout_s: float) -> None:
        assert timeout_s >= 0.1
        self.asked.append(cell_id)
        self.timeouts.append(timeout_s)

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        self.sent.append((node, message))
        return True


class Region:
    """One controller and the nodes that a test plays."""

    def __init__(
        self,
        extra: str = "",
        kept: KeptFleet | None = None,
        clock: FakeClock | None = None,
        lifecycle: str = "ramp_s: 0",
    ) -> None:
        self.settings = config.parse(f"{SETTINGS}lifecycle: {{{lifecycle}}}\n{extra}", ControllerSettings)
        self.clock = clock or FakeClock()
        self.outside = Outside()
        self.loop = ControlLoop(self.settings, self.clock, Metrics(), self.outside, kept)
        self.nodes: dict[str, dict[str, pb.EngineState.ValueType]] = {}
        self.queue: dict[str, float] = {}
        self.totals: dict[str, dict[str, int]] = {}
        self.rtt_ms: dict[str, float] = {}
        self.speed: dict[str, float] = {}  # tokens a second of tensor work; no count is told without it
        self.beat_at = 0.0

    def connect(
        self, node: str, *cells: str, state: pb.EngineState.ValueType = pb.ENGINE_STATE_SERVING
    ) -> None:
        """A node says Hello."""
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host="127.0.0.1", port=8000 + int(cell[1:])),
                models=[pb.ModelFacts(id="m")],
            )
            for cell in cells
        ]
        self.nodes[node] = dict.fromkeys(cells, state)
        hello = pb.Hello(node=node, site=node, incarnation=self.clock.wall_ns(), cells=facts)
        self.loop.hello(hello, self.clock.now())

    def run(self, seconds: float, silent: Iterable[str] = ()) -> None:
        """Let time pass: ticks, and beats of every node that is not silent."""
        for _ in range(round(seconds / TICK_S)):
            now = self.clock.advance(TICK_S)
            for node in self.nodes.keys() - set(silent):
                self.beat(node, now)
            self.loop.tick(now)

    def beat(self, node: str, now: float) -> None:
        """A telemetry beat with all signals."""
        beats = [
            pb.CellBeat(
                cell_id=cell,
                engine_state=state,
                serving_ms=600_000,
                signals=pb.Signals(queue_depth=self.queue.get(cell, 0.0), kv_fill=0.2, compute_active=0.3),
                hardware_source=pb.HARDWARE_SOURCE_DCGM,
                requests=pb.RequestTotals(**self.totals[cell]) if cell in self.totals else None,
                work=self.worked(cell, now),
                compute_measure=pb.COMPUTE_MEASURE_TENSOR,
            )
            for cell, state in self.nodes[node].items()
        ]
        path = pb.PathBeat(gateway="gw", rtt_ms=self.rtt_ms.get(node, 1.0), jitter_ms=0.1, age_ms=0)
        self.loop.telemetry(node, pb.Telemetry(cells=beats, paths=[path]), now)
        self.loop.alive(node, now)

    def worked(self, cell: str, now: float) -> pb.WorkTotals | None:
        """What an engine has computed that is busy for 0.3 of the time, in prompts of 64 tokens."""
        if cell not in self.speed:
            return None
        computed = self.speed[cell] * 0.3 * now
        return pb.WorkTotals(prompt_tokens=64 * int(computed / 64), generated_tokens=0)

    def down(self, node: str, cell: str) -> None:
        """An agent's event: the engine died."""
        self.nodes[node][cell] = pb.ENGINE_STATE_DOWN
        event = pb.CellEvent(event_id=1, cell_id=cell, kind=pb.CELL_EVENT_KIND_ENGINE_DOWN, cause="refused")
        self.loop.event(node, event, self.clock.now())

    @property
    def weights(self) -> dict[str, int]:
        """The published weights of pool m at the gateway."""
        return {each.cell_id: each.weight for each in self.outside.plans[-1].pools["m"]["gw"]}

    def state(self, cell: str) -> CellState:
        return self.loop.book.life(cell).state


@pytest.fixture
def region() -> Region:
    """Three nodes with a READY cell each, published."""
    made = Region()
    for number in (1, 2, 3):
        made.connect(f"n{number}", f"c{number}")
    made.run(4)
    return made


def test_nothing_is_published_before_the_barrier() -> None:
    region = Region()
    region.run(10)
    assert region.outside.plans == []
    region.connect("n1", "c1")
    region.run(2.9)
    assert region.outside.plans == []
    region.run(0.2)
    assert region.weights == {"c1": 100}


def test_equal_cells_get_equal_weights_and_then_no_push(region: Region) -> None:
    assert region.weights == {"c1": 100, "c2": 100, "c3": 100}
    pushes = len(region.outside.plans)
    region.run(30)
    assert len(region.outside.plans) == pushes


def test_a_queue_lowers_the_weight_of_its_cell_only(region: Region) -> None:
    region.queue["c2"] = 32.0
    region.run(10)
    assert region.weights["c1"] == region.weights["c3"] == 100
    assert region.weights["c2"] < 60


def test_a_dead_engine_is_out_of_the_next_plan_at_once(region: Region) -> None:
    region.down("n2", "c2")
    region.loop.tick(region.clock.now())
    assert set(region.weights) == {"c1", "c3"}
    assert region.state("c2") is CellState.FAILED


def test_an_old_event_is_history_and_moves_nothing(region: Region) -> None:
    """An agent that was cut off tells again that its engine died, long after it came back."""
    event = pb.CellEvent(event_id=1, cell_id="c2", kind=pb.CELL_EVENT_KIND_ENGINE_DOWN, age_ms=60_000)
    region.loop.event("n2", event, region.clock.now())
    region.run(1)
    assert region.weights == {"c1": 100, "c2": 100, "c3": 100}


def test_a_dead_engine_that_serves_again_comes_back_after_the_hold_down(region: Region) -> None:
    region.down("n2", "c2")
    region.run(0.1)
    region.nodes["n2"]["c2"] = pb.ENGINE_STATE_SERVING
    region.run(0.5)
    assert region.state("c2") is CellState.FAILED
    region.run(1.0)
    assert set(region.weights) == {"c1", "c2", "c3"}


def test_a_silent_agent_with_a_living_engine_keeps_its_weight(region: Region) -> None:
    region.run(0.6, silent=["n2"])
    assert region.outside.asked == ["c2"]
    region.loop.answered("c2", Answer.ALIVE, "")
    region.run(5, silent=["n2"])
    assert region.weights == {"c1": 100, "c2": 100, "c3": 100}
    assert region.loop.fleet.telemetry_lost[region.loop.fleet.row("c2")]
    region.run(0.2)
    assert not region.loop.fleet.telemetry_lost[region.loop.fleet.row("c2")]


def test_a_silent_agent_with_a_dead_engine_fails_its_cell(region: Region) -> None:
    region.run(0.6, silent=["n2"])
    region.loop.answered("c2", Answer.NO_ANSWER, "")
    region.loop.tick(region.clock.now())
    assert set(region.weights) == {"c1", "c2", "c3"}
    region.loop.answered("c2", Answer.NO_ANSWER, "")
    region.loop.tick(region.clock.now())
    assert set(region.weights) == {"c1", "c3"}


def test_a_node_that_is_cut_off_is_out_within_800_ms(region: Region) -> None:
    """Agent and engines are silent at once: 500 ms of silence, then two questions of 100 ms."""
    region.rtt_ms["n2"] = 25.0
    region.run(1)
    heard, due = region.clock.now(), float("inf")
    while len(region.weights) == 3 and region.clock.now() < heard + 2.0:
        region.run(TICK_S, silent=["n2"])
        if len(region.outside.asked) == 1 and due == float("inf"):
            due = region.clock.now() + region.outside.timeouts[0]
        while region.clock.now() >= due:
            region.loop.answered("c2", Answer.NO_ANSWER, "")
            due += region.outside.timeouts[-1]
            region.loop.tick(region.clock.now())
    assert region.outside.asked == ["c2", "c2"]
    assert region.outside.timeouts == pytest.approx([0.1, 0.1])
    assert region.clock.now() - heard <= 0.8


def test_on_silence_fail_does_not_ask() -> None:
    region = Region(lifecycle="ramp_s: 0, on_silence: fail")
    for number in (1, 2, 3):
        region.connect(f"n{number}", f"c{number}")
    region.run(4)
    region.run(0.6, silent=["n2"])
    assert region.outside.asked == []
    assert set(region.weights) == {"c1", "c3"}


def test_all_agents_silent_at_once_move_nothing(region: Region) -> None:
    pushes = len(region.outside.plans)
    region.run(3, silent=["n1", "n2", "n3"])
    for cell in ("c1", "c2", "c3"):
        region.loop.answered(cell, Answer.NO_ANSWER, "")
    region.run(1, silent=["n1", "n2", "n3"])
    assert region.loop.self_preservation
    assert len(region.outside.plans) == pushes
    assert region.weights == {"c1": 100, "c2": 100, "c3": 100}


def scorings(region: Region) -> list[float]:
    """The times at which the region's cells are scored from now on."""
    found: list[float] = []
    score = region.loop.model.tick

    def counted(fleet: Fleet, now: float) -> Pressures:
        found.append(now)
        return score(fleet, now)

    region.loop.model.tick = counted  # type: ignore[method-assign]
    return found


def test_figures_are_scored_soon_after_they_came_and_seldom_while_none_do(region: Region) -> None:
    """Most ticks of a quiet fleet must cost next to nothing."""
    found = scorings(region)
    for _ in range(100):
        now = region.clock.advance(TICK_S)
        for node in region.nodes:
            region.loop.alive(node, now)
        region.loop.tick(now)
    assert 18 <= len(found) <= 22
    for _ in range(20):
        found.clear()
        region.beat("n1", region.clock.now())
        for _ in range(2):
            region.loop.tick(region.clock.advance(TICK_S))
        assert len(found) == 1


def test_a_change_of_membership_waits_for_no_interval(region: Region) -> None:
    found = scorings(region)
    for cell in ("c1", "c2", "c3"):
        region.down(f"n{cell[1]}", cell)
        region.loop.tick(region.clock.now())
    assert found == [region.clock.now()] * 3


def test_a_planned_goodbye_moves_nothing_for_its_grace(region: Region) -> None:
    region.loop.goodbye("n2", pb.Goodbye(planned=True, grace_ms=5000), region.clock.now())
    for _ in range(9):
        region.run(0.5, silent=["n2"])
        region.loop.answered("c2", Answer.NO_ANSWER, "")
    assert region.weights == {"c1": 100, "c2": 100, "c3": 100}
    region.run(0.1)
    assert region.weights == {"c1": 100, "c2": 100, "c3": 100}


def test_a_planned_goodbye_does_not_shield_an_engine_that_refuses(region: Region) -> None:
    region.loop.goodbye("n2", pb.Goodbye(planned=True, grace_ms=30_000), region.clock.now())
    region.run(0.6, silent=["n2"])
    assert region.outside.asked == ["c2"]
    region.loop.answered("c2", Answer.DEAD, "refused")
    region.run(0.05, silent=["n2"])
    assert set(region.weights) == {"c1", "c3"}


def test_a_drain_takes_the_cell_out_and_tells_its_agent(region: Region) -> None:
    region.loop.drain("c1", "repair", 30.0)
    region.loop.tick(region.clock.now())
    assert set(region.weights) == {"c2", "c3"}
    node, message = region.outside.sent[-1]
    assert (node, message.directive.drain.cell_id) == ("n1", "c1")
    region.loop.undrain("c1", "done")
    region.run(0.1)
    assert set(region.weights) == {"c1", "c2", "c3"}


def test_every_cell_of_a_pool_lost_leaves_an_empty_pool_not_none(region: Region) -> None:
    for number in (1, 2, 3):
        region.down(f"n{number}", f"c{number}")
    region.loop.tick(region.clock.now())
    assert region.outside.plans[-1].pools == {"m": {"gw": Endpoints.of([])}}


def kept_from(region: Region) -> KeptFleet:
    """What the region's controller would have left on disk."""
    kept = Keeper(KeptFleetStore(Path("unused"), "default"), region.loop, "default").snapshot()
    assert kept is not None
    return kept


def test_a_restarted_controller_moves_no_traffic(region: Region) -> None:
    region.queue["c2"] = 16.0
    region.run(10)
    before = region.weights
    again = Region(kept=kept_from(region), clock=region.clock)
    again.queue = region.queue
    for number in (1, 2):
        again.connect(f"n{number}", f"c{number}")
    again.run(1)
    assert again.outside.plans == [], "one agent is not back yet, and the barrier is young"
    again.connect("n3", "c3")
    again.run(0.1)
    assert again.weights == before
    again.run(10)
    assert again.weights == before


def test_after_a_restart_an_agent_that_stays_away_does_not_empty_the_fleet(region: Region) -> None:
    again = Region(kept=kept_from(region), clock=region.clock)
    for number in (1, 2):
        again.connect(f"n{number}", f"c{number}")
    again.run(1)
    assert again.outside.asked[0] == "c3"
    again.loop.answered("c3", Answer.ALIVE, "")
    again.run(3)
    assert again.weights == {"c1": 100, "c2": 100, "c3": 100}


def test_baseline_publishes_every_cell_with_equal_weight_and_removes_none() -> None:
    region = Region("baseline: rr\n")
    region.connect("n1", "c1", "c2")
    region.run(4)
    region.down("n1", "c2")
    region.run(1)
    assert region.weights == {"c1": 1, "c2": 1}
    assert len(region.outside.plans) == 1
