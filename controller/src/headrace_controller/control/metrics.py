"""The controller's own Prometheus metrics; the names are fixed (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace_controller.control.view import FleetView

_FAST = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """Counters that the stages raise, and gauges read from the newest view at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.messages = Counter(
            "headrace_heartbeats", "Messages from agents, by kind.", ["kind"], registry=self.registry
        )
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
        self.errors = Counter(
            "headrace_tick_errors",
            "Publications that were withheld as inconsistent.",
            registry=self.registry,
        )

    def watch(self, view: Callable[[], FleetView]) -> None:
        """Serve the gauges of the cells from `view()`."""
        self.registry.register(_CellGauges(view))


class _CellGauges(Collector):
    def __init__(self, view: Callable[[], FleetView]) -> None:
        self._view = view

    def collect(self) -> Iterable[GaugeMetricFamily]:
        view = self._view()
        yield from _per_cell(view)
        yield from _per_gateway(view)
        yield GaugeMetricFamily(
            "headrace_self_preservation",
            "1 while expiries are withheld.",
            value=float(view.self_preservation),
        )


def _per_cell(view: FleetView) -> Iterator[GaugeMetricFamily]:
    cell = ["cell", "site"]
    pressure = GaugeMetricFamily(
        "headrace_cell_pressure", "Pressure, 0 to 1, 1 = most.", labels=[*cell, "gateway"]
    )
    weight = GaugeMetricFamily(
        "headrace_cell_weight", "Published weight; 0 = not published.", labels=[*cell, "gateway"]
    )
    state = GaugeMetricFamily(
        "headrace_cell_state", "1 LOADING, 2 READY, 3 DRAINING, 4 FAILED, 5 TERMINATED.", labels=cell
    )
    signal = GaugeMetricFamily(
        "headrace_cell_signal", "Raw signals, units as in the catalogue.", labels=[*cell, "signal"]
    )
    fallback = GaugeMetricFamily(
        "headrace_cell_fallback", "1 while the fallback is in force.", labels=[*cell, "kind"]
    )
    age = GaugeMetricFamily(
        "headrace_heartbeat_age_seconds", "Since the cell's agent was heard.", labels=cell
    )
    member = GaugeMetricFamily(
        "headrace_cell_member_up", "1 while another node under the cell reports.", labels=[*cell, "node"]
    )
    for each in view.cells:
        names = [each.id, each.site]
        state.add_metric(names, float(each.state_number))
        if each.heartbeat_age_s is not None:
            age.add_metric(names, each.heartbeat_age_s)
        for gateway, value in each.weights.items():
            weight.add_metric([*names, gateway], float(value))
        for gateway, score in each.pressures.items():
            pressure.add_metric([*names, gateway], score)
        for name, raw in each.signals.items():
            if raw is not None:
                signal.add_metric([*names, name], raw)
        for kind in ("nvml", "partial", "dcgm_fallback"):
            fallback.add_metric([*names, kind], float(each.fallback == kind))
        fallback.add_metric([*names, "member_lost"], float(each.member_lost))
        for other in each.members:
            member.add_metric([*names, other.node], float(not other.lost))
    yield from (pressure, weight, state, signal, fallback, age, member)


def _per_gateway(view: FleetView) -> Iterator[GaugeMetricFamily]:
    connected = GaugeMetricFamily(
        "headrace_gateway_connected", "Envoys connected as this gateway.", labels=["gateway"]
    )
    for gateway in view.gateways:
        connected.add_metric([gateway.id], float(gateway.streams))
    yield connected
