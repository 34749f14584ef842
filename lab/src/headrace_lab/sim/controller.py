"""The controller's own code, ingest to plan, on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headrace_controller.control.confirmation import Question
from headrace_controller.control.loop import QUIET_INTERVAL_S, ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.gateway.records import Record as Report
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.lifecycle import Answer
from headrace_controller.projection import Plan
from headrace_controller.settings import ControllerSettings
from headrace_lab.sim.agents import GATEWAY, SimAgent
from headrace_lab.sim.calendar import Calendar
from headrace_lab.sim.cells import Condition, SimCell
from headrace_lab.sim.gateway import MODEL
from headrace_lab.sim.paths import SitePath
from headrace_pb.v1 import telemetry_pb2 as pb

PUSH_S: Final = 0.002
"""From a plan to its being in force in the gateway's workers."""
_TICK_SLACK: Final = 1e-6


class SimController:
    """One controller, at the gateway's site, with an agent at each site.

    `on_plan` gets each plan when the gateway has it. Ticks come at the real interval, but those in
    which little could happen are left out: nothing was told since the last one, no agent is silent, no
    weight ramps up, or the time for a quiet look has not come. All agents beat in step, so that fewer
    ticks have news.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        calendar: Calendar,
        agents: Sequence[SimAgent],
        cells: dict[str, SimCell],
        addresses: dict[str, tuple[str, int]],
        on_plan: Callable[[float, Plan], None],
    ) -> None:
        self._settings = settings
        self._calendar = calendar
        self._cells = cells
        self._addresses = addresses
        self._on_plan = on_plan
        self.loop = ControlLoop(settings, calendar.clock, Metrics(), self, None)
        self._intake = Intake(self.loop, pb.Welcome)
        self._agents = {agent.node: agent for agent in agents}
        self._sessions: dict[str, Session] = {}
        self._seq: dict[str, int] = {}
        self._events: dict[str, int] = {}
        self._spoken_at: dict[str, float] = {}
        self._tick_s = settings.cadence.tick_s
        self._tick_due = float("inf")
        self._told = True
        self.plans = 0

    def start(self) -> None:
        """Let all agents connect."""
        now = self._calendar.clock.now()
        for agent in self._agents.values():
            self.greet(now, agent)
            self._calendar.enter(now, self._beat, agent)
        self._tick_at(now + self._tick_s)

    # Agents.

    def greet(self, now: float, agent: SimAgent) -> None:
        """An agent connects."""
        hello = agent.hello(self._calendar.clock.wall_ns(), self._addresses, MODEL)
        session = self._intake.open(hello, local=True)
        if not isinstance(session, Session):
            raise ValueError(f"the controller refuses {agent.node}: {session.detail}")
        self._sessions[agent.node], self._seq[agent.node] = session, 0
        self._events[agent.node] = session.event_id
        self._intake.greet(session, hello, now)
        self._note_told(now)

    def _beat(self, now: float, agent: SimAgent) -> None:
        self._calendar.enter(now + self._settings.cadence.telemetry_s, self._beat, agent)
        telemetry = agent.telemetry(now)
        if not agent.dark and agent.path.passes:
            message = pb.AgentMessage(telemetry=telemetry)
            self._calendar.enter(now + agent.path.delay(now), self._take, (agent, message))

    def tell(self, now: float, agent: SimAgent, cell_id: str, kind: pb.CellEventKind.ValueType) -> None:
        """An agent tells of something that cannot wait."""
        if agent.dark or not agent.path.passes:
            return
        self._events[agent.node] += 1
        event = pb.CellEvent(event_id=self._events[agent.node], cell_id=cell_id, kind=kind, cause="simulated")
        self._calendar.enter(now + agent.path.delay(now), self._take, (agent, pb.AgentMessage(event=event)))

    def _take(self, now: float, told: tuple[SimAgent, pb.AgentMessage]) -> None:
        agent, message = told
        self._deliver(now, agent.node, message)
        if message.HasField("event"):
            self._tick(now, None)
        else:
            self._note_told(now)

    def _deliver(self, now: float, node: str, message: pb.AgentMessage) -> None:
        self._seq[node] += 1
        getattr(message, message.WhichOneof("body") or "").seq = self._seq[node]
        self._spoken_at[node] = now
        self._intake.take(self._sessions[node], message, now)

    def _say_alive(self, now: float) -> None:
        """The liveness beats since the last tick, of which only the newest matters."""
        for node, agent in self._agents.items():
            if agent.dark or not agent.path.passes:
                continue
            if now - self._spoken_at.get(node, 0.0) >= self._settings.cadence.liveness_s:
                self._deliver(now, node, pb.AgentMessage(liveness=pb.Liveness()))

    @property
    def _someone_silent(self) -> bool:
        return any(agent.dark or not agent.path.passes for agent in self._agents.values())

    # Gateways.

    def report(self, now: float, reports: Sequence[Report]) -> None:
        """What the gateway's access log says."""
        self.loop.reports.requests(GATEWAY, reports, 1, True)
        self._note_told(now)

    # Ticks.

    def _note_told(self, now: float) -> None:
        self._told = True
        self._tick_at(now)

    def _tick_at(self, at: float) -> None:
        """See that there is a tick at the first regular moment from `at` on."""
        number = int(at / self._tick_s - _TICK_SLACK) + 1
        due = number * self._tick_s
        if due < self._tick_due:
            self._tick_due = due
            self._calendar.enter(due, self._tick, due)

    def _tick(self, now: float, due: float | None) -> None:
        if due is not None and due != self._tick_due:
            return
        self._tick_due = float("inf")
        self._say_alive(now)
        scored = self.loop.pressures
        self.loop.tick(now)
        if self.loop.pressures is not scored:
            self._told = False
        if self._told or self._someone_silent or self.loop.published is None:
            self._tick_at(now + self._tick_s)
        else:
            self._tick_at(now + (self._settings.cadence.telemetry_s if self._steady else QUIET_INTERVAL_S))

    @property
    def _steady(self) -> bool:
        """Whether no weight changes by the passing of time alone."""
        projected = self.loop.projected
        return projected is not None and bool((projected.ramp >= 1.0).all())

    # control.loop.Outside.

    def publish(self, plan: Plan) -> None:
        """Give the gateway the plan."""
        self.plans += 1
        self._calendar.enter(self._calendar.clock.now() + PUSH_S, self._on_plan, plan)

    def ask_engine(self, cell_id: str, question: Question, timeout_s: float) -> None:
        """Ask a cell's engine whether it lives; the answer comes with the path's delay."""
        now = self._calendar.clock.now()
        cell = self._cells[cell_id]
        path = self._path_of(cell)
        answer, took = Answer.NO_ANSWER, timeout_s
        if path.passes and cell.condition is not Condition.HUNG:
            rtt = path.delay(now) + path.delay(now)
            if rtt <= timeout_s:
                alive = cell.condition is Condition.SERVING
                answer, took = Answer.ALIVE if alive else Answer.DEAD, rtt
        self._calendar.enter(now + took, self._answered, (cell_id, answer))

    def _path_of(self, cell: SimCell) -> SitePath:
        return next(agent.path for agent in self._agents.values() if agent.site == cell.plan.site)

    def _answered(self, now: float, told: tuple[str, Answer]) -> None:
        self.loop.answered(told[0], told[1], "simulated")
        self._tick(now, None)

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        """Agents here have nothing to do for a directive but to be told."""
        return node in self._sessions
