"""What the controller counts, for Prometheus; the names are fixed (docs/metrics.md).

The gauges of the cells are in control.gauges: there are too many of them for this library's pace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)

from headrace_controller import __version__
from headrace_controller.pressure.evidence import KINDS
from headrace_controller.xds.names import SHORT

_FAST = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

IMPOSTURE: Final = (
    *("wrong_identity", "identity_changed", "wrong_site", "unknown_site", "foreign_address"),
    *("foreign_cell", "cell_held", "unknown_gateway", "report_unknown_gateway", "pick_unknown_gateway"),
    *("xds_wrong_identity", "report_wrong_identity", "pick_wrong_identity"),
)
"""Reasons of rejections that an impostor would cause; an alert watches them (docs/alerts.md)."""


class Metrics:
    """Counters that the stages raise, and the figures of the process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.info = Info("headrace_controller", "Always 1; what runs.", registry=self.registry)
        self.info.info({"version": __version__})
        self._by_kind: dict[str, Counter] = {}
        self._count_agents()
        self._count_decisions()
        self._count_classes()
        self._count_gateways()
        self._count_operators()
        self._count_recordings()

    def _count_agents(self) -> None:
        self.messages = self._counter("headrace_heartbeats", "Messages from agents, by kind.", "kind")
        self.rejections = self._counter(
            "headrace_rejections", "Messages or cells not taken, by reason.", "reason"
        )
        # A counter that begins to exist with its first event hides it from rate(); so for those below.
        for reason in IMPOSTURE:
            self.rejections.labels(reason)

    def _count_decisions(self) -> None:
        self.transitions = self._counter(
            "headrace_transitions", "Changes of a cell's state.", "from", "to", "event"
        )
        self.route_update = self._timer("headrace_route_update_seconds", "One projection plus xDS build.")
        self.tick = self._timer("headrace_tick_seconds", "One control tick.")
        self.errors = self._counter(
            "headrace_tick_errors", "Publications that were withheld as inconsistent."
        )
        self.alerts = self._counter(
            "headrace_early_warnings", "Early warnings that began, by kind of evidence.", "kind"
        )
        for kind in KINDS:
            self.alerts.labels(kind)

    def _count_classes(self) -> None:
        self.boundaries = self._gauge(
            "headrace_class_bytes_per_token",
            "Learned boundary of a capability class.",
            "model",
            "max_model_len",
        )
        self.sizes_refused = self._counter(
            "headrace_class_sizes_refused",
            "Requests whose size was not counted for boundaries: too many lengths of models.",
        )

    def _count_gateways(self) -> None:
        self.pushes = self._counter("headrace_xds_pushes", "Responses sent to gateways.", "gateway", "type")
        self.nacks = self._counter("headrace_xds_nacks", "Responses a gateway refused.", "gateway", "type")
        self.acks = self._timer("headrace_xds_ack_seconds", "From push to acknowledgement.", "type")
        self.gateway_records = self._counter(
            "headrace_gateway_records",
            "Records of gateways' access logs: read, failed tries, or left out by sampling.",
            "gateway",
            "fate",
        )
        self.gateway_streams = self._gauge(
            "headrace_gateway_report_streams", "Streams by which Envoys report now.", "gateway", "kind"
        )

    def _count_operators(self) -> None:
        self.admin_refused = self._counter(
            "headrace_admin_refused", "Requests of operators that were not let in, by reason.", "reason"
        )
        for reason in ("no_token", "wrong_token", "role", "not_local", "host", "origin"):
            self.admin_refused.labels(reason)
        self.intents_lost = self._counter(
            "headrace_intents_not_kept", "Intents and audit entries that the disk did not take."
        )
        self.reloads = self._counter("headrace_reloads", "Reloads of the settings, by result.", "result")
        for result in ("applied", "unchanged", "refused", "failed"):
            self.reloads.labels(result)

    def _count_recordings(self) -> None:
        self.recorded = self._counter("headrace_recording_bytes", "Bytes recorded, compressed.")
        self.recording_lost = self._counter(
            "headrace_recording_lost", "Entries that were not recorded, by reason.", "reason"
        )
        for reason in ("queue", "disk"):
            self.recording_lost.labels(reason)

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(name, says, labels, registry=self.registry)

    def _gauge(self, name: str, says: str, *labels: str) -> Gauge:
        return Gauge(name, says, labels, registry=self.registry)

    def _timer(self, name: str, says: str, *labels: str) -> Histogram:
        return Histogram(name, says, labels, buckets=_FAST, registry=self.registry)

    def expect(self, gateways: Iterable[str]) -> None:
        """Count from 0 what will be sent to these gateways and refused by them."""
        for gateway in gateways:
            for kind in SHORT.values():
                self.pushes.labels(gateway, kind)
                self.nacks.labels(gateway, kind)

    def count_message(self, kind: str) -> None:
        """One message of an agent. Thousands come each second, and finding a label's counter costs
        more than raising it."""
        counter = self._by_kind.get(kind)
        if counter is None:
            counter = self._by_kind[kind] = self.messages.labels(kind)
        counter.inc()
