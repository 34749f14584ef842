"""The control loop: messages in, the pure stages, instructions carried out.

Everything here runs in one event loop and none of it waits: a message changes the inventory and
the lives at once; one `tick` then scores, projects and publishes. A change of membership wakes the
tick instead of waiting for its time, so a failed endpoint leaves Envoy within milliseconds, and a
storm of such changes is still one publication.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from headrace_controller.control.class_watch import ClassWatch
from headrace_controller.control.confirmation import HEALTH_PATH, Question
from headrace_controller.control.event_log import EventLog
from headrace_controller.control.gateway_reports import GatewayReports
from headrace_controller.control.kept_fleet import KeptFleet
from headrace_controller.control.metrics import Metrics
from headrace_controller.control.warm_start import restore
from headrace_controller.control.witness import Witness
from headrace_controller.inventory import Fleet, MemberChange
from headrace_controller.lifecycle import (
    Answer,
    AskEngine,
    Barrier,
    Book,
    Forget,
    Instruction,
    LoggedTransition,
    NotifyDrained,
    Publish,
    TellAgentDrain,
    TellAgentUndrain,
)
from headrace_controller.pressure import Alert, PressureModel, Pressures, choose_drains
from headrace_controller.projection import (
    NO_INTENTS,
    CellExplanation,
    Intents,
    Plan,
    Projected,
    Projector,
    baseline_plan,
    explain,
)
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.net import HostPort

RTT_FACTOR = 4.0
# Figures come twice a second from each node; a change of membership waits for neither of these.
SCORE_INTERVAL_S = 0.1
QUIET_INTERVAL_S = 0.25
ALERTS_KEPT = 4096
BY_EARLY_WARNING = "early warning"


class Outside(Protocol):
    """What the loop may do to the world; every call returns at once."""

    def publish(self, plan: Plan) -> None:
        """Give every gateway the plan."""
        ...

    def ask_engine(self, cell_id: str, question: Question, timeout_s: float) -> None:
        """Ask an engine whether it lives; the answer comes back through `answered`."""
        ...

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        """Send a message to an agent; False when it is not connected."""
        ...


class ControlLoop:
    """Owns the inventory and the lives. Implements headrace_controller.ingest.intake.Sink."""

    def __init__(
        self,
        settings: ControllerSettings,
        clock: Clock,
        metrics: Metrics,
        outside: Outside,
        kept: KeptFleet | None,
    ) -> None:
        now = clock.now()
        gateways = [gateway.id for gateway in settings.gateways]
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._outside = outside
        self._gateways = gateways
        self._wake = asyncio.Event()
        self._membership_changed = ""
        self._told = True
        self._scored_at = float("-inf")
        self._heard: set[str] | None = set()
        self._greeted: set[str] = set()
        self._alarm = False
        self._log = log.get("control")
        self.events = EventLog(clock)
        self.witnesses: list[Witness] = [self.events]
        self.ticked_at = now
        self.fleet = Fleet(gateways, retention_s=settings.lifecycle.retention_s)
        ready = frozenset(cell.id for cell in kept.cells if cell.ready) if kept else frozenset()
        self.book = Book(self.fleet, settings.lifecycle, kept=ready)
        self.barrier = Barrier(settings.lifecycle.barrier_s, now, kept.nodes if kept else None)
        self.model = _model_of(settings)
        self.projector = Projector(settings.projection, gateways, settings.lifecycle.ramp_s)
        self.classes = ClassWatch(settings.capability, metrics, kept.boundary_records if kept else ())
        self.projector.divide(self.classes.guide)
        self.reports = GatewayReports(settings, self.fleet, clock, metrics, self._reported)
        self.classes.sizes = self.reports.sizes
        self.pressures: Pressures | None = None
        self.projected: Projected | None = None
        self.alerts: deque[Alert] = deque(maxlen=ALERTS_KEPT)
        self._intents = NO_INTENTS
        self.published: Plan | None = None
        self._weights: dict[str, dict[str, dict[str, int]]] | None = None
        if kept is not None:
            restore(kept, settings, now, self.fleet, self.book, self.model, self.projector)

    def now(self) -> float:
        """The monotonic time that all times in here are on, s."""
        return self._clock.now()

    @property
    def intents(self) -> Intents:
        """What operators ask of the weights; assigning others is obeyed at the next tick."""
        return self._intents

    @intents.setter
    def intents(self, intents: Intents) -> None:
        self._intents = intents
        self._told, self._scored_at = True, float("-inf")
        self._wake.set()
        for witness in self.witnesses:
            witness.intended(intents, self._clock.now())

    def use(self, settings: ControllerSettings) -> None:
        """Other times, ranges, scorers and projections are in force from now on. Cells go on from the
        scores, the evidence and the weights that they have."""
        before, self._settings = self._settings, settings
        self.book.use(settings.lifecycle)
        self.fleet.retention_s = settings.lifecycle.retention_s
        if (before.pressure, before.projection, before.lifecycle.ramp_s) != (
            *(settings.pressure, settings.projection),
            settings.lifecycle.ramp_s,
        ):
            self._score_anew(settings)

    def _score_anew(self, settings: ControllerSettings) -> None:
        now, old = self._clock.now(), self.model
        self.model = _model_of(settings)
        for row in self.fleet.rows().tolist():
            self.model.restore(self.fleet, row, old.record(self.fleet, row), now)
        self.model.early = old.early
        self.model.early.use(settings.pressure.early_warning, settings.pressure.stale_after_s)
        told = self.projector
        self.projector = Projector(settings.projection, self._gateways, settings.lifecycle.ramp_s)
        self.projector.divide(self.classes.guide)
        self.projector.go_on_from(told)
        weights = {cell_id: self.weights_by_model(cell_id) for cell_id in self.fleet.cell_ids()}
        self.projector.seed(self.fleet, weights, now)
        self._told, self._scored_at = True, float("-inf")
        self._wake.set()

    @property
    def self_preservation(self) -> bool:
        """True while expiries are withheld."""
        return self._alarm

    def weights_by_model(self, cell_id: str) -> dict[str, dict[str, int]]:
        """The published weights of a cell, by model and gateway; empty where it has none."""
        if self._weights is None:
            self._weights = _by_cell(self.published) if self.published else {}
        return self._weights.get(cell_id, {})

    def weights_of(self, cell_id: str) -> dict[str, int]:
        """The published weight of a cell at each gateway; the most of its pools, 0 = in none."""
        by_model = self.weights_by_model(cell_id).values()
        return {
            gateway: max((each.get(gateway, 0) for each in by_model), default=0) for gateway in self._gateways
        }

    def explain(self, cell_id: str, gateway: str) -> CellExplanation | None:
        """Why the cell's weight is what it is, as of the last tick; None where it was not scored. Raises
        KeyError for an unknown cell, ValueError for an unknown gateway."""
        if self.pressures is None or self.projected is None:
            self.fleet.row(cell_id)
            return None
        return explain(
            self.fleet, self.pressures, self.projected, self._settings.projection, cell_id, gateway
        )

    # Messages, from ingest.

    def hello(self, hello: pb.Hello, now: float) -> None:
        self._told = True
        changes = self.fleet.register(hello.node, hello.site, hello, now)
        self._carry_out(self.book.registered(changes, now))
        self._greeted.add(hello.node)
        for witness in self.witnesses:
            witness.greeted(hello, now)

    def telemetry(self, node: str, telemetry: pb.Telemetry, now: float) -> None:
        # Only figures say how a node is: the barrier does not open on its mere name, nor on a node
        # without cells.
        if self._heard is not None and self.fleet.node_cells(node):
            self._heard.add(node)
        self._told = True
        self.fleet.apply(node, telemetry, now)
        for witness in self.witnesses:
            witness.told(node, telemetry, now)

    def alive(self, node: str, now: float) -> None:
        self.fleet.touch(node, now)

    def event(self, node: str, event: pb.CellEvent, now: float) -> None:
        kind = pb.CellEventKind.Name(event.kind)
        self._log.info(
            "event", node=node, cell=event.cell_id, kind=kind, cause=event.cause, age_ms=event.age_ms
        )
        if self.fleet.note_event(node, event, now):
            self._carry_out(self.book.happened(event, now))

    def goodbye(self, node: str, goodbye: pb.Goodbye, now: float) -> None:
        self._carry_out(self.book.goodbye(node, goodbye.planned, goodbye.grace_ms / 1000.0, now))

    def stream_lost(self, node: str, now: float) -> None:
        """Nothing at once: silence is what the lifecycle judges."""

    def _reported(self) -> None:
        self._told = True

    # Answers and wishes.

    def answered(self, cell_id: str, answer: Answer, detail: str) -> None:
        """Take an engine's own answer; the cell may be gone by now."""
        if self.fleet.get(cell_id) is None:
            return
        if answer is Answer.NO_ANSWER:
            # This controller's path to the engine may be at fault; the gateways' is what counts.
            answer, detail = self.reports.answer_of(cell_id, self._clock.now()) or (answer, detail)
        before = self.book.life(cell_id).state
        self._carry_out(self.book.answered(cell_id, answer, self._clock.now()))
        if self.book.life(cell_id).state is not before:
            self._log.warning("silent agent, and its engine does not answer", cell=cell_id, detail=detail)

    def drain(
        self, cell_id: str, cause: str, deadline_s: float | None, requested_by: str = "operator"
    ) -> None:
        """Begin to drain a cell. Raises KeyError or IllegalTransition."""
        now = self._clock.now()
        self._carry_out(
            self.book.drain(cell_id, now, requested_by=requested_by, cause=cause, deadline_s=deadline_s)
        )

    def undrain(self, cell_id: str, cause: str) -> None:
        """Take a drain back. Raises KeyError or IllegalTransition."""
        self._carry_out(self.book.undrain(cell_id, self._clock.now(), cause))

    # The tick.

    async def run(self) -> None:
        """Tick at the set interval, and at once when membership changes, until cancelled.

        In a storm of changes a tick leaves as much time to the messages as it took itself: what comes
        meanwhile is one publication, and the agents' beats are still read.
        """
        interval = self._settings.cadence.tick_s
        rested = self._clock.now()
        due = rested + interval
        while True:
            with suppress(TimeoutError):  # which is the ordinary tick
                async with asyncio.timeout(max(0.0, due - self._clock.now())):
                    await self._wake.wait()
            if (rest := rested - self._clock.now()) > 0:
                await asyncio.sleep(rest)
            self._wake.clear()
            now = self._clock.now()
            lateness = max(0.0, now - due)
            self.tick(now, lateness)
            ended = self._clock.now()
            rested = ended + min(ended - now, interval)
            if now >= due:
                due = max(due + interval, now)

    def tick(self, now: float, lateness: float = 0.0) -> None:
        """One round of the pure stages at `now`; `lateness` is how late the loop itself is, s."""
        self.ticked_at = now
        with self._metrics.tick.time():
            outcome = self.book.tick(now, lateness)
            self._note_alarm(outcome.alarm)
            self._carry_out(outcome.instructions)
            self._note_transitions(outcome.transitions)
            self._note_members(outcome.members)
            self._repeat_drains(now)
            if self._heard is not None:
                if not self.barrier.open(frozenset(self._heard), now):
                    return
                self._heard = None
            force = "first" if self.published is None else self._membership_changed
            self.reports.prune_sizes(now)
            if self.classes.look(self.published, now, self.fleet.retention_s):
                self.projector.divide(self.classes.guide)
                force = force or "classes"
            if force or self._is_due(now):
                self._membership_changed, self._told, self._scored_at = "", False, now
                self._publish(now, force)

    def _is_due(self, now: float) -> bool:
        """Whether to score: soon after new figures, and now and then for what time alone changes (ramps,
        smoothing, figures that grow old). Ticks come at their own interval, so the nearest one counts."""
        interval = SCORE_INTERVAL_S if self._told else QUIET_INTERVAL_S
        return now - self._scored_at >= interval - self._settings.cadence.tick_s / 2

    def _publish(self, now: float, force: str) -> None:
        with self._metrics.route_update.time():
            if self._settings.baseline is not None:
                plan: Plan | None = baseline_plan(self.fleet, self._gateways)
                if plan == self.published:
                    return
            else:
                self.pressures = self.model.tick(self.fleet, now)
                self._note_alerts(self.pressures.alerts)
                self.projected = self.projector.tick(
                    self.fleet, self.pressures, now, force=bool(force), intents=self._intents
                )
                plan = self.projected.plan
                for witness in self.witnesses:
                    witness.scored(self.pressures, self.projected, now)
                self._drain_alerted(now)
            if plan is None:
                return
            self._outside.publish(plan)
        self.published, self._weights = plan, None

    def _drain_alerted(self, now: float) -> None:
        """Drain the cells whose early warning has lasted, where the settings ask for that."""
        early = self._settings.pressure.early_warning
        for cell_id in choose_drains(self.fleet, self.model.early, early, now):
            self._log.warning("drained by early warning", cell=cell_id, lasted_s=early.drain_after_s)
            self._carry_out(
                self.book.drain(cell_id, now, requested_by=BY_EARLY_WARNING, cause="its early warning lasts")
            )

    # Instructions.

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Publish(_, cause):
                    self._membership_changed = cause or "membership"
                    self._wake.set()
                case AskEngine(cell_id):
                    self._ask(cell_id)
                case TellAgentDrain(cell_id, cause, deadline_s):
                    drain = pb.Drain(
                        cell_id=cell_id, cause=cause, deadline_ms=int((deadline_s or 0.0) * 1000)
                    )
                    self._direct(cell_id, pb.Directive(drain=drain))
                case TellAgentUndrain(cell_id):
                    self._direct(cell_id, pb.Directive(undrain=pb.Undrain(cell_id=cell_id)))
                case NotifyDrained(cell_id, requested_by, _, outcome):
                    self._log.info("drained", cell=cell_id, asked_by=requested_by, outcome=outcome)
                case Forget(cell_id):
                    self._log.info("forgotten", cell=cell_id)
                    self.reports.forget(cell_id)
                    for witness in self.witnesses:
                        witness.forgotten(cell_id, self._clock.now())

    def _ask(self, cell_id: str) -> None:
        row = self.fleet.row(cell_id)
        facts = self.fleet.facts_of(row)
        rtts = [rtt for rtt in self.fleet.last_rtt_ms[row].tolist() if rtt == rtt]
        timeout = max(
            self._settings.lifecycle.confirm_timeout_s, RTT_FACTOR * max(rtts, default=0.0) / 1000.0
        )
        self._outside.ask_engine(
            cell_id,
            Question(
                HostPort(facts.host, facts.port), facts.health_path or HEALTH_PATH, facts.tls, facts.model_ids
            ),
            timeout,
        )

    def _direct(self, cell_id: str, directive: pb.Directive) -> None:
        node = self.fleet.facts_of(self.fleet.row(cell_id)).node
        if not self._outside.send(node, pb.ControllerMessage(directive=directive)):
            self._log.warning("agent is not connected; it is not told", node=node, cell=cell_id)

    def _repeat_drains(self, now: float) -> None:
        """Tell agents that have said Hello of the drains under way: after their Welcome, which is
        queued by now."""
        greeted, self._greeted = self._greeted, set()
        for node in sorted(greeted):
            self._carry_out(self.book.standing_drains(node, now))

    def _note_members(self, changes: Iterable[MemberChange]) -> None:
        for change in changes:
            self._told = True
            if change.lost:
                self._log.warning(
                    "member lost: its GPUs count nowhere until its agent reports again",
                    cell=change.cell_id,
                    node=change.node,
                )
            else:
                self._log.info("member reports again", cell=change.cell_id, node=change.node)

    def _note_alerts(self, alerts: Iterable[Alert]) -> None:
        for alert in alerts:
            self.alerts.append(alert)
            word = "early warning" if alert.began else "early warning over"
            self._log.warning(word, cell=alert.cell_id, kind=alert.kind, said=alert.said)
            for witness in self.witnesses:
                witness.alerted(alert)
            if alert.began:
                self._metrics.alerts.labels(alert.kind).inc()

    def _note_alarm(self, alarm: bool) -> None:
        if alarm != self._alarm:
            self._log.warning("self-preservation on: weights hold" if alarm else "self-preservation off")
            for witness in self.witnesses:
                witness.withheld(alarm)
        self._alarm = alarm

    def _note_transitions(self, transitions: Iterable[LoggedTransition]) -> None:
        for entry in transitions:
            change = entry.transition
            for witness in self.witnesses:
                witness.changed(entry)
            before = change.before.name if change.before else ""
            if before == change.to.name:
                continue
            self._metrics.transitions.labels(before, change.to.name, change.event.value).inc()
            self._log.info(
                "state",
                cell=entry.cell_id,
                before=before,
                after=change.to.name,
                by=change.event.value,
                cause=change.cause,
            )


def _model_of(settings: ControllerSettings) -> PressureModel:
    return PressureModel(
        settings.pressure,
        len(settings.gateways),
        jump=settings.projection.emergency,
        ttft_slos={model: pool.ttft_slo_s for model, pool in settings.pools.items() if pool.ttft_slo_s},
        gateway_trust_s=settings.gateway_reports.trust_s,
    )


def _by_cell(plan: Plan) -> dict[str, dict[str, dict[str, int]]]:
    """The plan's weights as [cell][model][gateway]."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for model, gateways in plan.pools.items():
        for gateway, endpoints in gateways.items():
            for endpoint in endpoints:
                found.setdefault(endpoint.cell_id, {}).setdefault(model, {})[gateway] = endpoint.weight
    return found
