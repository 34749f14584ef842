"""The agent's own metrics, read from the live objects when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import Status
from headrace_agent.heartbeat.stream import ControllerStream
from headrace_agent.service.node import Node
from headrace_shared.clock import Clock


class AgentMetrics(Collector):
    """headrace_agent_* of one agent. The `cell` of a source that serves the whole host is empty."""

    def __init__(
        self, node: Node, streams: Sequence[ControllerStream], clock: Clock, mishaps: Mishaps
    ) -> None:
        self._node = node
        self._streams = streams
        self._clock = clock
        self._mishaps = mishaps

    def collect(self) -> Iterator[Metric]:
        yield from self._of_streams()
        yield from self._of_sources()
        yield from self._of_tallies()
        yield self._of_mishaps()

    def _of_streams(self) -> Iterator[Metric]:
        label = ["controller"]
        beats = CounterMetricFamily(
            "headrace_agent_beats_sent", "Telemetry and liveness beats sent.", labels=label
        )
        connected = GaugeMetricFamily(
            "headrace_agent_connected", "1 while the controller answers.", labels=label
        )
        unacked = GaugeMetricFamily(
            "headrace_agent_events_unacked", "Events the controller has not acknowledged.", labels=label
        )
        dropped = CounterMetricFamily(
            "headrace_agent_events_dropped", "Events lost to the bound on how many are kept.", labels=label
        )
        for stream in self._streams:
            beats.add_metric([stream.name], stream.beats_sent)
            connected.add_metric([stream.name], float(stream.connected))
            unacked.add_metric([stream.name], stream.events_unacked)
            dropped.add_metric([stream.name], stream.events_dropped)
        yield from (beats, connected, unacked, dropped)

    def _of_sources(self) -> Iterator[Metric]:
        labels = ["source", "cell"]
        ok = GaugeMetricFamily("headrace_agent_source_ok", "1 while the source gives figures.", labels=labels)
        age = GaugeMetricFamily(
            "headrace_agent_source_age_seconds",
            "Since the source was last read; absent: never.",
            labels=labels,
        )
        now = self._clock.now()
        for reading in self._node.readings(now):
            for source in (reading.engine.source, *reading.hardware.sources):
                ok.add_metric([source.name, reading.cell.id], float(source.status is Status.OK))
                if source.read_at is not None:
                    age.add_metric([source.name, reading.cell.id], max(0.0, now - source.read_at))
        yield from (ok, age)

    def _of_tallies(self) -> Iterator[Metric]:
        labels = ["source", "cell"]
        reads = CounterMetricFamily("headrace_agent_source_reads", "Tries to read the source.", labels=labels)
        failures = CounterMetricFamily(
            "headrace_agent_source_failures", "Tries that brought nothing.", labels=labels
        )
        for (source, cell), tally in self._node.tallies().items():
            reads.add_metric([source, cell], tally.tries)
            failures.add_metric([source, cell], tally.failures)
        yield from (reads, failures)

    def _of_mishaps(self) -> Metric:
        mishaps = CounterMetricFamily(
            "headrace_agent_mishaps", "Unexpected errors, contained; the log tells them.", labels=["part"]
        )
        for part, count in self._mishaps.counts.items():
            mishaps.add_metric([part], count)
        return mishaps


def build_page(collector: Collector) -> CollectorRegistry:
    """A registry of the agent's own metrics and its process's."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry) -> bytes:
    """The page in the Prometheus text format."""
    return generate_latest(registry)
