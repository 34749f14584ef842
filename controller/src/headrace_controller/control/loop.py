"""The control loop: messages in, the pure stages, instructions carried out.

Everything here runs in one event loop and none of it waits: a message changes the inventory and
the lives at once; one `tick` then scores, projects and publishes. What takes a cell out of service wakes
the tick instead of waiting for its time, so a failed endpoint leaves Envoy within milliseconds, and a
storm of changes is still few publications.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headrace_controller.control.chronicle import Chronicle
from headrace_controller.control.class_watch import ClassWatch
from headrace_controller.control.event_log import EventLog
from headrace_controller.control.gateway_reports import GatewayReports
from headrace_controller.control.kept_fleet import KeptFleet
from headrace_controller.control.metrics import Metrics
from headrace_controller.control.outside import Hands, Outside
from headrace_controller.control.pace import (
    LONGEST_REST_S,
    PICKED_REST_S,
    QUIET_INTERVAL_S,
    SCORE_INTERVAL_S,
    Pace,
)
from headrace_controller.control.scoring import Scoring, scored_alike
from headrace_controller.control.standing import Standing
from headrace_controller.control.warm_start import restore
from headrace_controller.control.witness import Witness
from headrace_controller.ingest.reading import Reading
from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import Answer, Barrier, Book
from headrace_controller.pressure import choose_drains
from headrace_controller.projection import (
    NO_INTENTS,
    Intents,
    Plan,
)
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import Clock

__all__ = ["QUIET_INTERVAL_S", "SCORE_INTERVAL_S", "ControlLoop", "Outside"]

BY_EARLY_WARNING = "early warning"


class ControlLoop(Standing):
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
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._outside = outside
        self._wake = asyncio.Event()
        self._heard: set[str] | None = set()
        self._greeted: set[str] = set()
        self._intents = NO_INTENTS
        self._log = log.get("control")
        self.events = EventLog(clock)
        self.witnesses: list[Witness] = [self.events]
        self.ticked_at = now
        self.fleet = Fleet(
            [gateway.id for gateway in settings.gateways], retention_s=settings.lifecycle.retention_s
        )
        ready = frozenset(cell.id for cell in kept.cells if cell.ready) if kept else frozenset()
        self.book = Book(self.fleet, settings.lifecycle, kept=ready)
        self.barrier = Barrier(settings.lifecycle.barrier_s, now, kept.nodes if kept else None)
        self.classes = ClassWatch(settings.capability, metrics, kept.boundary_records if kept else ())
        self.reports = GatewayReports(settings, self.fleet, clock, metrics, self._reported)
        self.classes.sizes = self.reports.sizes
        self._scoring = Scoring(settings, self.fleet, self.classes)
        rest_s = PICKED_REST_S if settings.picker.enabled else LONGEST_REST_S
        self._pace = Pace(settings.cadence.tick_s, rest_s)
        self._chronicle = Chronicle(metrics, self.witnesses)
        self._hands = Hands(settings, self.fleet, outside, self._changed, self._forgotten)
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
        self._demand()
        for witness in self.witnesses:
            witness.intended(intents, self._clock.now())

    def use(self, settings: ControllerSettings) -> None:
        """Other times, ranges, scorers and projections are in force from now on. Cells go on from the
        scores, the evidence and the weights that they have."""
        before, self._settings = self._settings, settings
        self._hands.settings = settings
        self.book.use(settings.lifecycle)
        self.fleet.retention_s = settings.lifecycle.retention_s
        if not scored_alike(before, settings):
            self._scoring.use(settings, self._clock.now())
            self._demand()

    def _demand(self) -> None:
        self._pace.demand()
        self._wake.set()

    # Messages, from ingest.

    def hello(self, hello: pb.Hello, now: float) -> None:
        self._pace.note_figures()
        changes = self.fleet.register(hello.node, hello.site, hello, now)
        self._hands.carry_out(self.book.registered(changes, now))
        self._greeted.add(hello.node)
        for witness in self.witnesses:
            witness.greeted(hello, now)

    def telemetry(
        self, node: str, telemetry: pb.Telemetry, now: float, reading: Reading | None = None
    ) -> None:
        # Only figures say how a node is: the barrier does not open on its mere name, nor on a node
        # without cells.
        if self._heard is not None and self.fleet.node_cells(node):
            self._heard.add(node)
        self._pace.note_figures()
        self.fleet.apply(node, telemetry, now, reading)
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
            self._hands.carry_out(self.book.happened(event, now))

    def goodbye(self, node: str, goodbye: pb.Goodbye, now: float) -> None:
        self._hands.carry_out(self.book.goodbye(node, goodbye.planned, goodbye.grace_ms / 1000.0, now))

    def stream_lost(self, node: str, now: float) -> None:
        """Nothing at once: silence is what the lifecycle judges."""

    def _reported(self) -> None:
        self._pace.note_figures()

    # Answers and wishes.

    def answered(self, cell_id: str, answer: Answer, detail: str) -> None:
        """Take an engine's own answer; the cell may be gone by now."""
        if self.fleet.get(cell_id) is None:
            return
        if answer is Answer.NO_ANSWER:
            # This controller's path to the engine may be at fault; the gateways' is what counts.
            answer, detail = self.reports.answer_of(cell_id, self._clock.now()) or (answer, detail)
        before = self.book.life(cell_id).state
        self._hands.carry_out(self.book.answered(cell_id, answer, self._clock.now()))
        if self.book.life(cell_id).state is not before:
            self._log.warning("silent agent, and its engine does not answer", cell=cell_id, detail=detail)

    def drain(
        self, cell_id: str, cause: str, deadline_s: float | None, requested_by: str = "operator"
    ) -> None:
        """Begin to drain a cell. Raises KeyError or IllegalTransition."""
        now = self._clock.now()
        self._hands.carry_out(
            self.book.drain(cell_id, now, requested_by=requested_by, cause=cause, deadline_s=deadline_s)
        )

    def undrain(self, cell_id: str, cause: str) -> None:
        """Take a drain back. Raises KeyError or IllegalTransition."""
        self._hands.carry_out(self.book.undrain(cell_id, self._clock.now(), cause))

    def _changed(self, cell_id: str, cause: str) -> None:
        """A cell comes into service or goes out of it, or gateways must be told something new of it."""
        # Only who has come into service since the last plan can wait: gateways hold nothing of it.
        joins = False
        if self.fleet.get(cell_id) is not None:
            life = self.book.life(cell_id)
            joins = life.carries_weight and life.since > self._pace.scored_at
        self._pace.note_change(cause, urgent=not joins)
        if not self._pace.rests(self._clock.now()):
            self._wake.set()

    def _forgotten(self, cell_id: str) -> None:
        self.reports.forget(cell_id)
        for witness in self.witnesses:
            witness.forgotten(cell_id, self._clock.now())

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
            self._chronicle.note_alarm(outcome.alarm)
            self._hands.carry_out(outcome.instructions)
            self._chronicle.note_transitions(outcome.transitions)
            if outcome.members:
                self._pace.note_figures()
                self._chronicle.note_members(outcome.members)
            self._repeat_drains(now)
            if not self._is_open(now):
                return
            self.reports.prune_sizes(now)
            if self.classes.look(self.published, now, self.fleet.retention_s):
                self._scoring.divide()
                self._pace.note_change("classes", urgent=False)
            if self.published is None or self._pace.is_due(now):
                self._publish_now(now)

    def _publish_now(self, now: float) -> None:
        begun = self._clock.now()
        force = self._pace.begin(now)
        self._publish(now, force or ("first" if self.published is None else ""))
        ended = self._clock.now()
        self._pace.end(ended, ended - begun)
        if not self._pace.waits:
            # What woke the loop is in the plan.
            self._wake.clear()

    def _is_open(self, now: float) -> bool:
        """Whether the warm start is over: nothing is published before."""
        if self._heard is not None:
            if not self.barrier.open(frozenset(self._heard), now):
                return False
            self._heard = None
        return True

    def _repeat_drains(self, now: float) -> None:
        """Tell agents that have said Hello of the drains under way: after their Welcome, which is
        queued by now."""
        greeted, self._greeted = self._greeted, set()
        for node in sorted(greeted):
            self._hands.carry_out(self.book.standing_drains(node, now))

    def _publish(self, now: float, force: str) -> None:
        with self._metrics.route_update.time():
            if self._settings.baseline is not None:
                plan = self._scoring.baseline()
            else:
                plan = self._score(now, force)
            if plan is None:
                return
            self._outside.publish(plan)
        self._scoring.published = plan

    def _score(self, now: float, force: str) -> Plan | None:
        pressures = self._scoring.score(now)
        self._chronicle.note_alerts(pressures.alerts)
        projected = self._scoring.project(pressures, now, bool(force), self._intents)
        for witness in self.witnesses:
            witness.scored(pressures, projected, now)
        self._drain_alerted(now)
        return projected.plan

    def _drain_alerted(self, now: float) -> None:
        """Drain the cells whose early warning has lasted, where the settings ask for that."""
        early = self._settings.pressure.early_warning
        for cell_id in choose_drains(self.fleet, self.model.early, early, now):
            self._log.warning("drained by early warning", cell=cell_id, lasted_s=early.drain_after_s)
            self._hands.carry_out(
                self.book.drain(cell_id, now, requested_by=BY_EARLY_WARNING, cause="its early warning lasts")
            )
