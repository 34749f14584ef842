"""Tells what has happened: to the log, the counters, and whoever looks on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from headrace_controller.control.metrics import Metrics
from headrace_controller.control.witness import Witness
from headrace_controller.inventory import MemberChange
from headrace_controller.lifecycle import LoggedTransition
from headrace_controller.pressure import Alert
from headrace_shared import log

ALERTS_KEPT: Final = 4096


class Chronicle:
    """Tells the `witnesses`, which are told in their order and may become more."""

    def __init__(self, metrics: Metrics, witnesses: Sequence[Witness]) -> None:
        self.alarm = False
        self.alerts: deque[Alert] = deque(maxlen=ALERTS_KEPT)
        self._metrics = metrics
        self._witnesses = witnesses
        self._log = log.get("control")

    def note_members(self, changes: Iterable[MemberChange]) -> None:
        """Nodes under other nodes' cells fell silent, or report again."""
        for change in changes:
            if change.lost:
                self._log.warning(
                    "member lost: its GPUs count nowhere until its agent reports again",
                    cell=change.cell_id,
                    node=change.node,
                )
            else:
                self._log.info("member reports again", cell=change.cell_id, node=change.node)

    def note_alerts(self, alerts: Iterable[Alert]) -> None:
        """Early warnings began or ended."""
        for alert in alerts:
            self.alerts.append(alert)
            word = "early warning" if alert.began else "early warning over"
            self._log.warning(word, cell=alert.cell_id, kind=alert.kind, said=alert.said)
            for witness in self._witnesses:
                witness.alerted(alert)
            if alert.began:
                self._metrics.alerts.labels(alert.kind).inc()

    def note_alarm(self, alarm: bool) -> None:
        """Self-preservation is on or off."""
        if alarm != self.alarm:
            self._log.warning("self-preservation on: weights hold" if alarm else "self-preservation off")
            for witness in self._witnesses:
                witness.withheld(alarm)
        self.alarm = alarm

    def note_transitions(self, transitions: Iterable[LoggedTransition]) -> None:
        """Lives have changed."""
        for entry in transitions:
            change = entry.transition
            for witness in self._witnesses:
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
