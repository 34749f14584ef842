"""A cell's /metrics page, with the names, types and buckets of the engine version it plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace_lab.cell import buckets
from headrace_lab.cell.versions import Dialect
from headrace_lab.engine import EngineParameters, EngineStats, Finish, Output

Labels = dict[str, str]


class CellMetrics:
    """Counts what a cell does; `stats` is asked for the engine's figures at each rendering.

    A rejected request moves no `vllm:` series, as in the real engine: only the HTTP counter, which
    V0 does not have.
    """

    def __init__(
        self, model: str, parameters: EngineParameters, dialect: Dialect, stats: Callable[[], EngineStats]
    ) -> None:
        self._registry = CollectorRegistry()
        for collector in (GCCollector, PlatformCollector, ProcessCollector):
            collector(registry=self._registry)
        self._labels: Labels = {"model_name": model} | ({"engine": "0"} if dialect.engine_label else {})
        self._registry.register(EngineFigures(self._labels, parameters, dialect, stats))
        v0 = dialect.v0
        latency = buckets.LATENCY_V0 if v0 else buckets.LATENCY
        sizes = buckets.sizes_up_to(parameters.max_model_len)
        gap_name = "time_per_output_token_seconds" if v0 else "inter_token_latency_seconds"
        self._ttft = self._histogram("time_to_first_token_seconds", buckets.TTFT_V0 if v0 else buckets.TTFT)
        self._gap = self._histogram(gap_name, buckets.GAP_V0 if v0 else buckets.GAP)
        self._e2e = self._histogram("e2e_request_latency_seconds", latency)
        self._queue = self._histogram("request_queue_time_seconds", latency)
        self._prefill = self._histogram("request_prefill_time_seconds", latency)
        self._decode = self._histogram("request_decode_time_seconds", latency)
        self._prompts = self._histogram("request_prompt_tokens", sizes)
        self._answers = self._histogram("request_generation_tokens", sizes)
        self._finished = self._reasons(
            ("stop", "length", "abort") if v0 else ("stop", "length", "abort", "error", "repetition")
        )
        self._http = HttpCounters(self._registry) if dialect.http_counter else None

    def token(self, output: Output) -> None:
        """Take in one generated token."""
        (self._ttft if output.number == 1 else self._gap).observe(output.latency_s)

    def finished(self, finish: Finish) -> None:
        """Take in the end of a request."""
        self._finished[finish.reason.value].inc()
        self._e2e.observe(finish.e2e_s)
        self._prompts.observe(finish.prompt_tokens)
        self._answers.observe(finish.generated_tokens)
        for histogram, seconds in (
            (self._queue, finish.queue_s),
            (self._prefill, finish.prefill_s),
            (self._decode, finish.decode_s),
        ):
            if seconds is not None:
                histogram.observe(seconds)

    def http(self, handler: str, method: str, status: int, seconds: float) -> None:
        """Take in the end of an HTTP request; `handler` is the route, or `none`."""
        if self._http is not None:
            self._http.observe(handler, method, status, seconds)

    def render(self) -> bytes:
        """The page."""
        return generate_latest(self._registry)

    def _histogram(self, name: str, bounds: tuple[float, ...]) -> Histogram:
        family = Histogram(
            f"vllm:{name}",
            f"Histogram of {name.replace('_', ' ')}.",
            list(self._labels),
            buckets=bounds,
            registry=self._registry,
        )
        return family.labels(**self._labels)

    def _reasons(self, reasons: tuple[str, ...]) -> dict[str, Counter]:
        family = Counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            [*self._labels, "finished_reason"],
            registry=self._registry,
        )
        return {reason: family.labels(**self._labels, finished_reason=reason) for reason in reasons}


class HttpCounters:
    """HTTP requests by route, method and class of status; a series appears with its first event."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = Counter(
            "http_requests",
            "Total number of requests by method, status and handler.",
            ["method", "status", "handler"],
            registry=registry,
        )
        self._seconds = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler.",
            ["method", "handler"],
            buckets=buckets.HTTP,
            registry=registry,
        )

    def observe(self, handler: str, method: str, status: int, seconds: float) -> None:
        self._total.labels(method=method, status=f"{status // 100}xx", handler=handler).inc()
        self._seconds.labels(method=method, handler=handler).observe(seconds)


class EngineFigures(Collector):
    """Gauges and counters read from the engine when the page is made."""

    def __init__(
        self,
        labels: Labels,
        parameters: EngineParameters,
        dialect: Dialect,
        stats: Callable[[], EngineStats],
    ) -> None:
        self._labels = labels
        self._parameters = parameters
        self._dialect = dialect
        self._stats = stats

    def describe(self) -> list[Metric]:
        return []  # names are asked for before the engine exists

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        yield self._gauge("num_requests_running", "Requests in execution.", stats.running)
        yield self._gauge("num_requests_waiting", "Requests waiting to be processed.", stats.waiting)
        for name in self._dialect.kv_names:
            yield self._gauge(name, "KV-cache usage. 1 means 100 percent usage.", stats.kv_fill)
        yield self._cache_config()
        yield self._counter("num_preemptions", "Cumulative number of preemptions.", stats.preemptions)
        yield self._counter("prompt_tokens", "Number of prefill tokens processed.", stats.prompt_tokens)
        yield self._counter("generation_tokens", "Number of tokens generated.", stats.generation_tokens)
        yield from self._v0_figures() if self._dialect.v0 else self._v1_figures()

    def _v0_figures(self) -> Iterator[Metric]:
        yield self._gauge("num_requests_swapped", "Requests swapped to CPU.", 0)
        yield self._gauge("cpu_cache_usage_perc", "CPU KV-cache usage. 1 means 100 percent usage.", 0)
        for name in ("cpu_prefix_cache_hit_rate", "gpu_prefix_cache_hit_rate"):
            yield self._gauge(name, "Prefix cache block hit rate; -1 = off.", -1)

    def _v1_figures(self) -> Iterator[Metric]:
        stats = self._stats()
        yield self._counter("prefix_cache_queries", "Prefix cache, in tokens.", stats.prefix_queries)
        yield self._counter("prefix_cache_hits", "Prefix cache, in tokens.", stats.prefix_hits)
        sleep = GaugeMetricFamily(
            "vllm:engine_sleep_state", "Engine sleep state.", labels=[*self._labels, "sleep_state"]
        )
        for state in ("awake", "weights_offloaded", "discard_all"):
            sleep.add_metric([*self._labels.values(), state], float(state == "awake"))
        yield sleep

    def _cache_config(self) -> Metric:
        labels = {
            "block_size": str(self._parameters.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "False",
            "gpu_memory_utilization": "0.92",
            "num_gpu_blocks": str(self._parameters.kv_blocks),
        }
        if self._dialect.engine_label:
            labels["engine"] = "0"
        info = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig.", labels=list(labels)
        )
        info.add_metric(list(labels.values()), 1.0)
        return info

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family
