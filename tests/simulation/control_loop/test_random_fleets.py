"""Whatever agents, engines and operators do, in whatever order: what gateways are told stays true.

The real path, from the intake of messages to the EDS resources, under a clock that the test owns.
"""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace_controller.control.keeper import Keeper
from headrace_controller.control.kept_fleet import KeptFleet, KeptFleetStore
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.lifecycle import Answer, CellState, IllegalTransition
from headrace_controller.projection import Plan
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.names import EDS
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config
from tests.support.clock import FakeClock

SETTINGS = config.parse(
    "gateways: [{id: gw, host: 127.0.0.1}]\n"
    "lifecycle: {ramp_s: 2, drain_deadline_s: 20, retention_s: 30, history: 8}\n",
    ControllerSettings,
)
NODES = ("n1", "n2", "n3")
CELLS = {f"c{number}": 8000 + number for number in range(1, 7)}
HOME = {"n1": ("c1", "c2"), "n2": ("c3", "c4"), "n3": ("c5", "c6")}
STATES = st.sampled_from(pb.EngineState.values())
EVENTS = st.sampled_from([kind for kind in pb.CellEventKind.values() if kind])
nodes = st.sampled_from(NODES)
cells = st.sampled_from(sorted(CELLS))


class Gateway:
    """What a gateway would be told: the endpoints of the newest plan, by address."""

    def __init__(self, epoch: int) -> None:
        self._builder = SnapshotBuilder(SETTINGS.gateways[0], SETTINGS.envoy, epoch_ns=epoch)
        self.weights: dict[int, int] = {}
        self.questions: list[str] = []

    def publish(self, plan: Plan) -> None:
        self.weights = {}
        for resource in self._builder.build(plan).types[EDS].resources.values():
            assignment = endpoint_pb2.ClusterLoadAssignment()
            assert resource.box.Unpack(assignment)
            for locality in assignment.endpoints:
                for each in locality.lb_endpoints:
                    port = each.endpoint.address.socket_address.port_value
                    self.weights[port] = each.load_balancing_weight.value

    def ask_engine(self, cell_id: str, *_: Any) -> None:
        self.questions.append(cell_id)

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        return True


class FleetMachine(RuleBasedStateMachine):
    """Three nodes of two cells each, one gateway, one controller that is now and then restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.sessions: dict[str, Session] = {}
        self.seq: dict[str, int] = {}
        self.events: dict[str, int] = {}
        self.starts = 0
        self.start(None)

    def start(self, kept: KeptFleet | None) -> None:
        self.starts += 1
        self.sessions.clear()
        self.gateway = Gateway(self.starts)
        self.loop = ControlLoop(SETTINGS, self.clock, Metrics(), self.gateway, kept)
        self.intake = Intake(self.loop, pb.Welcome)
        self.logged: dict[str, CellState] = {
            life.cell_id: life.state for life in self.loop.book.lives()
        }  # what a warm start has told already
        self.seen = len(self.loop.book.transitions)

    @initialize()
    def begin(self) -> None:
        for node in NODES:
            self.connect(node, HOME[node], True)
            self.beat(node, [pb.ENGINE_STATE_SERVING] * len(CELLS))
        for _ in range(8):
            self.everyone_beats(0.5)

    # Agents.

    @rule(node=nodes, named=st.sets(cells, max_size=4), restarted=st.booleans())
    def connects(self, node: str, named: set[str], restarted: bool) -> None:
        """A new stream: of the same agent or a restarted one, for its own cells or for others'."""
        self.connect(node, tuple(sorted(named)), restarted)

    @rule(node=nodes)
    def comes_home(self, node: str) -> None:
        self.connect(node, HOME[node], restarted=True)

    def connect(self, node: str, named: tuple[str, ...], restarted: bool) -> None:
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host="127.0.0.1", port=CELLS[cell]),
                models=[pb.ModelFacts(id="m")],
            )
            for cell in named
        ]
        old = self.sessions.get(node)
        incarnation = (old.incarnation if old else self.clock.wall_ns()) + restarted
        hello = pb.Hello(node=node, site="s", incarnation=incarnation, cells=facts)
        session = self.intake.open(hello, local=True)
        if isinstance(session, Session):
            self.sessions[node], self.seq[node] = session, 0
            self.events[node] = session.event_id
            self.intake.greet(session, hello, self.clock.now())
            self.intake.news()
        self.settle()

    def take(self, node: str, **body: Any) -> None:
        session = self.sessions.get(node)
        if session is not None:
            self.seq[node] += 1
            next(iter(body.values())).seq = self.seq[node]
            self.intake.take(session, pb.AgentMessage(**body), self.clock.now())

    @rule(node=nodes, states=st.lists(STATES, min_size=len(CELLS), max_size=len(CELLS)))
    def beat(self, node: str, states: list[pb.EngineState.ValueType]) -> None:
        session = self.sessions.get(node)
        beats = [
            pb.CellBeat(
                cell_id=cell,
                engine_state=state,
                serving_ms=5000,
                in_flight=0,
                signals=pb.Signals(queue_depth=1, kv_fill=0.2, compute_active=0.3),
                hardware_source=pb.HARDWARE_SOURCE_DCGM,
            )
            for cell, state in zip(sorted(CELLS), states, strict=True)
            if session is not None and cell in session.cells
        ]
        self.take(node, telemetry=pb.Telemetry(cells=beats))
        self.settle()

    @rule(seconds=st.sampled_from([0.1, 0.5, 3.0]))
    def everyone_beats(self, seconds: float) -> None:
        """Time passes in which all that is connected serves and says so."""
        for _ in range(round(seconds / 0.1)):
            self.clock.advance(0.1)
            for node in sorted(self.sessions):
                self.beat(node, [pb.ENGINE_STATE_SERVING] * len(CELLS))

    @rule(node=nodes)
    def lives(self, node: str) -> None:
        self.take(node, liveness=pb.Liveness())

    @rule(
        node=nodes, cell=cells, kind=EVENTS, xid=st.sampled_from([13, 48, 79]), age=st.sampled_from([0, 5000])
    )
    def tells(self, node: str, cell: str, kind: pb.CellEventKind.ValueType, xid: int, age: int) -> None:
        self.events[node] = self.events.get(node, 0) + 1
        event = pb.CellEvent(event_id=self.events[node], cell_id=cell, kind=kind, cause="random", age_ms=age)
        if kind == pb.CELL_EVENT_KIND_XID:
            event.xid = xid
        self.take(node, event=event)
        self.settle()

    @rule(node=nodes, planned=st.booleans(), grace_ms=st.integers(0, 20_000))
    def says_goodbye(self, node: str, planned: bool, grace_ms: int) -> None:
        self.take(node, goodbye=pb.Goodbye(planned=planned, grace_ms=grace_ms))
        self.leave(node)

    @rule(node=nodes)
    def leave(self, node: str) -> None:
        session = self.sessions.pop(node, None)
        if session is not None:
            self.intake.close(session, self.clock.now())
        self.settle()

    # Engines, operators, time.

    @precondition(lambda self: bool(self.gateway.questions))
    @rule(answer=st.sampled_from(Answer))
    def answer(self, answer: Answer) -> None:
        self.loop.answered(self.gateway.questions.pop(0), answer, "random")
        self.settle()

    @rule(cell=cells, deadline=st.none() | st.floats(0, 60))
    def drain(self, cell: str, deadline: float | None) -> None:
        if cell in self.loop.fleet:
            self.loop.drain(cell, "maintenance", deadline)
            self.settle()

    @rule(cell=cells)
    def undrain(self, cell: str) -> None:
        if cell not in self.loop.fleet:
            return
        life = self.loop.book.life(cell)
        if life.drain is not None:
            self.loop.undrain(cell, "done")
            self.settle()
            return
        with pytest.raises(IllegalTransition) as raised:
            self.loop.undrain(cell, "done")
        assert raised.value.story.startswith(f"{cell}: {life.state.name}")
        assert self.loop.book.life(cell) is life, "a refused event changes nothing"

    @rule(seconds=st.floats(0.05, 40), late=st.sampled_from([0.0, 0.0, 0.3, 5.0]))
    def wait(self, seconds: float, late: float) -> None:
        self.clock.advance(seconds)
        self.loop.tick(self.clock.now(), min(late, seconds))

    @rule(warm=st.booleans())
    def controller_restarts(self, warm: bool) -> None:
        store = KeptFleetStore.__new__(KeptFleetStore)
        kept = Keeper(store, self.loop, SETTINGS.region).snapshot() if warm else None
        self.start(KeptFleet.model_validate_json(kept.model_dump_json()) if kept else None)

    def settle(self) -> None:
        """The tick that a change of membership wakes."""
        self.loop.tick(self.clock.now())

    # What always holds.

    @invariant()
    def lives_and_columns_agree(self) -> None:
        self.loop.book.check()

    @invariant()
    def gateways_are_told_of_ready_cells_alone_and_of_all(self) -> None:
        if self.loop.published is None:
            return
        ready = {CELLS[life.cell_id] for life in self.loop.book.lives() if life.state is CellState.READY}
        assert set(self.gateway.weights) == ready
        assert all(1 <= each <= SETTINGS.projection.max_weight for each in self.gateway.weights.values())

    @invariant()
    def every_drain_ends(self) -> None:
        for life in self.loop.book.lives():
            if life.state is CellState.DRAINING:
                assert life.drain is not None
                assert life.drain.deadline > self.loop.ticked_at

    @invariant()
    def no_transition_is_missing(self) -> None:
        """Each cell's log is one chain, from its first naming to its present state."""
        log = list(self.loop.book.transitions)
        for entry in log[self.seen :]:
            change = entry.transition
            if change.before is None:
                self.logged.pop(entry.cell_id, None)
            assert self.logged.get(entry.cell_id) is change.before
            self.logged[entry.cell_id] = change.to
        self.seen = len(log)
        for life in self.loop.book.lives():
            assert self.logged[life.cell_id] is life.state
            assert len(life.history) <= SETTINGS.lifecycle.history


FleetMachine.TestCase.settings = hypothesis_settings(max_examples=40, stateful_step_count=30, deadline=None)
TestRandomFleets = FleetMachine.TestCase
