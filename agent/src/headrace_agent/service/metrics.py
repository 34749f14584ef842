"""The agent's own metrics, read from the live objects when they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import SourceReading, Status
from headrace_agent.heartbeat.stream import ControllerStream
from headrace_agent.service.node import Node
from headrace_agent.service.reload import Reloader
from headrace_shared.clock import Clock


class AgentMetrics(Collector):
    """headrace_agent_* of one agent. The `cell` of a source that serves the whole host is empty."""

    def __init__(
        self,
        node: Node,
        streams: Mapping[str, ControllerStream],
        clock: Clock,
        mishaps: Mishaps,
        reloader: Reloader,
        config_hash: Callable[[], str],
    ) -> None:
        self._node = node
        self._streams = streams
        self._clock = clock
        self._mishaps = mishaps
        self._reloader = reloader
        self._config_hash = config_hash

    def collect(self) -> Iterator[Metric]:
        yield from self._of_streams()
        yield from self._of_sources()
        yield self._of_missing()
        yield from self._of_tallies()
        yield self._of_mishaps()
        yield from self._of_config()
        yield from self._of_tasks()

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
        for stream in self._streams.values():
            beats.add_metric([stream.name], stream.beats_sent)
            connected.add_metric([stream.name], float(stream.connected))
            unacked.add_metric([stream.name], stream.events_unacked)
            dropped.add_metric([stream.name], stream.events_dropped)
        yield from (beats, connected, unacked, dropped)

    def _of_sources(self) -> Iterator[Metric]:
        labels = ["source", "cell"]
        ok = GaugeMetricFamily(
            "headrace_agent_source_ok",
            "1 while the source gives figures; absent: not there, and not needed.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "headrace_agent_source_age_seconds",
            "Since the source was last read; absent: never.",
            labels=labels,
        )
        now = self._clock.now()
        for cell_id, source in self._sources(now):
            if not source.spare:
                ok.add_metric([source.name, cell_id], float(source.status is Status.OK))
            if source.read_at is not None:
                age.add_metric([source.name, cell_id], max(0.0, now - source.read_at))
        yield from (ok, age)

    def _sources(self, now: float) -> Iterator[tuple[str, SourceReading]]:
        """Each source of each cell that this host tells of, as (cell id, source)."""
        for reading in self._node.readings(now):
            for source in (reading.engine.source, *reading.hardware.sources):
                yield reading.cell.id, source
        for member in self._node.members(now):
            for source in member.hardware.sources:
                yield member.cell_id, source

    def _of_missing(self) -> Metric:
        missing = GaugeMetricFamily(
            "headrace_agent_missing_families",
            "1 for each family that the engine's metrics page should have and has not.",
            labels=["cell", "family"],
        )
        for reading in self._node.readings(self._clock.now()):
            for family in reading.engine.missing:
                missing.add_metric([reading.cell.id, family], 1.0)
        return missing

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

    def _of_tasks(self) -> Iterator[Metric]:
        try:
            tasks = asyncio.all_tasks()
        except RuntimeError:  # asked from outside the event loop
            return
        yield GaugeMetricFamily("headrace_agent_tasks", "Tasks in the event loop.", float(len(tasks)))

    def _of_config(self) -> Iterator[Metric]:
        reloads = CounterMetricFamily("headrace_agent_reloads", "Reloads by outcome.", labels=["result"])
        for result, count in self._reloader.counts.items():
            reloads.add_metric([result], count)
        yield reloads
        yield GaugeMetricFamily(
            "headrace_agent_last_reload_ok",
            "1 unless the settings file differs from what is in force because it was refused.",
            float(not self._reloader.trouble),
        )
        config = GaugeMetricFamily(
            "headrace_agent_config_info", "Always 1; a hash of the settings in force.", labels=["hash"]
        )
        config.add_metric([self._config_hash()], 1.0)
        yield config
        who = self._node.identity
        info = GaugeMetricFamily(
            "headrace_agent_info", "Always 1; what runs, and where.", labels=["version", "node", "site"]
        )
        info.add_metric([who.version, who.node, who.site], 1.0)
        yield info


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
