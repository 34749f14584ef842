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
        self.messages = Counter(
            "headrace_heartbeats", "Messages from agents, by kind.", ["kind"], registry=self.registry
        )
        self._by_kind: dict[str, Counter] = {}
        self.rejections = Counter(
            "headrace_rejections",
            "Messages or cells not taken, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.transitions = Counter(
            "headrace_transitions",
            "Changes of a cell's state.",
            ["from", "to", "event"],
            registry=self.registry,
        )
        self.pushes = Counter(
            "headrace_xds_pushes", "Responses sent to gateways.", ["gateway", "type"], registry=self.registry
        )
        self.nacks = Counter(
            "headrace_xds_nacks", "Responses a gateway refused.", ["gateway", "type"], registry=self.registry
        )
        self.acks = Histogram(
            "headrace_xds_ack_seconds",
            "From push to acknowledgement.",
            ["type"],
            buckets=_FAST,
            registry=self.registry,
        )
        self.route_update = Histogram(
            "headrace_route_update_seconds",
            "One projection plus xDS build.",
            buckets=_FAST,
            registry=self.registry,
        )
        self.tick = Histogram(
            "headrace_tick_seconds", "One control tick.", buckets=_FAST, registry=self.registry
        )
        self.alerts = Counter(
            "headrace_early_warnings",
            "Early warnings that began, by kind of evidence.",
            ["kind"],
            registry=self.registry,
        )
        for kind in KINDS:
            self.alerts.labels(kind)  # a rate needs the 0 before the first one
        self.boundaries = Gauge(
            "headrace_class_bytes_per_token",
            "Learned boundary of a capability class.",
            ["model", "max_model_len"],
            registry=self.registry,
        )
        self.sizes_refused = Counter(
            "headrace_class_sizes_refused",
            "Requests whose size was not counted for boundaries: too many lengths of models.",
            registry=self.registry,
        )
        self.gateway_records = Counter(
            "headrace_gateway_records",
            "Records of gateways' access logs: read, failed tries, or left out by sampling.",
            ["gateway", "fate"],
            registry=self.registry,
        )
        self.gateway_streams = Gauge(
            "headrace_gateway_report_streams",
            "Streams by which Envoys report now.",
            ["gateway", "kind"],
            registry=self.registry,
        )
        self.errors = Counter(
            "headrace_tick_errors",
            "Publications that were withheld as inconsistent.",
            registry=self.registry,
        )
        self.admin_refused = Counter(
            "headrace_admin_refused",
            "Requests of operators that were not let in, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.intents_lost = Counter(
            "headrace_intents_not_kept",
            "Intents and audit entries that the disk did not take.",
            registry=self.registry,
        )
        self.recorded = Counter(
            "headrace_recording_bytes", "Bytes recorded, compressed.", registry=self.registry
        )
        self.recording_lost = Counter(
            "headrace_recording_lost",
            "Entries that were not recorded, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.reloads = Counter(
            "headrace_reloads", "Reloads of the settings, by result.", ["result"], registry=self.registry
        )
        # A counter that begins to exist with its first event hides it from rate().
        for result in ("applied", "unchanged", "refused", "failed"):
            self.reloads.labels(result)
        for reason in ("queue", "disk"):
            self.recording_lost.labels(reason)
        for reason in ("no_token", "wrong_token", "role", "not_local", "host", "origin"):
            self.admin_refused.labels(reason)
        for reason in IMPOSTURE:
            self.rejections.labels(reason)

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
