"""Readings to protobuf messages. Pure: `now` comes in, nothing is kept.

What was not measured is absent, and so is what cannot be true (NaN, infinities, negatives, a
fraction above 1): a controller refuses a beat for one bad figure, and the other cells of the node
must not pay for it. Texts are cut to what controllers take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace_agent.collectors.readings import (
    CellEvent,
    Compute,
    EngineReading,
    EngineState,
    EventKind,
    HardwareReading,
    HardwareSource,
    Health,
    Model,
    PathMethod,
    PathReading,
    SourceReading,
    Status,
    Totals,
    Work,
)
from headrace_agent.settings import CellSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import SIGNALS, Origin

MAX_MODELS: Final = 256
MAX_GPUS: Final = 64
MAX_LABELS: Final = 64
MAX_NAME: Final = 1024
MAX_DETAIL: Final = 512

_UINT32_MAX: Final = 2**32 - 1
_UINT64_MAX: Final = 2**64 - 1
# Rounding may put a full cache a hair above 1; anything more is a wrong unit.
_FRACTION_LIMIT: Final = 1.001

_LIMITS: Final = {s.name: _FRACTION_LIMIT if s.unit == "fraction" else math.inf for s in SIGNALS}
_ENGINE_SIGNALS: Final = tuple(s.name for s in SIGNALS if s.origin is Origin.ENGINE)
_GPU_SIGNALS: Final = tuple(s.name for s in SIGNALS if s.origin is Origin.GPU)

_STATES: Final = {
    EngineState.LOADING: pb.ENGINE_STATE_LOADING,
    EngineState.SERVING: pb.ENGINE_STATE_SERVING,
    EngineState.DOWN: pb.ENGINE_STATE_DOWN,
    EngineState.HUNG: pb.ENGINE_STATE_HUNG,
    EngineState.SLEEPING: pb.ENGINE_STATE_SLEEPING,
}
_STATUSES: Final = {
    Status.OK: pb.SOURCE_STATUS_OK,
    Status.NO_DATA: pb.SOURCE_STATUS_NO_DATA,
    Status.FAILED: pb.SOURCE_STATUS_FAILED,
    Status.STALE: pb.SOURCE_STATUS_STALE,
}
_HARDWARE: Final = {
    HardwareSource.DCGM: pb.HARDWARE_SOURCE_DCGM,
    HardwareSource.NVML: pb.HARDWARE_SOURCE_NVML,
    HardwareSource.NONE: pb.HARDWARE_SOURCE_NONE,
}
_COMPUTE: Final = {
    None: pb.COMPUTE_MEASURE_UNSPECIFIED,
    Compute.TENSOR: pb.COMPUTE_MEASURE_TENSOR,
    Compute.SM: pb.COMPUTE_MEASURE_SM,
    Compute.ENGINE: pb.COMPUTE_MEASURE_ENGINE,
}
_METHODS: Final = {
    PathMethod.ICMP: pb.PATH_METHOD_ICMP,
    PathMethod.TCP_CONNECT: pb.PATH_METHOD_TCP_CONNECT,
}
_EVENTS: Final = {
    EventKind.ENGINE_DOWN: pb.CELL_EVENT_KIND_ENGINE_DOWN,
    EventKind.ENGINE_LOADING: pb.CELL_EVENT_KIND_ENGINE_LOADING,
    EventKind.ENGINE_SERVING: pb.CELL_EVENT_KIND_ENGINE_SERVING,
    EventKind.ENGINE_HUNG: pb.CELL_EVENT_KIND_ENGINE_HUNG,
    EventKind.ENGINE_SLEEPING: pb.CELL_EVENT_KIND_ENGINE_SLEEPING,
    EventKind.XID: pb.CELL_EVENT_KIND_XID,
    EventKind.GPU_LOST: pb.CELL_EVENT_KIND_GPU_LOST,
    EventKind.DRAIN_FINISHED: pb.CELL_EVENT_KIND_DRAIN_FINISHED,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who speaks; `incarnation` is the agent's start, in nanoseconds since the epoch."""

    node: str
    site: str
    version: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class CellReading:
    """One cell's settings and what its collectors say of it."""

    cell: CellSettings
    engine: EngineReading
    hardware: HardwareReading


@dataclass(frozen=True, slots=True)
class MemberReading:
    """This host's GPUs under another node's cell."""

    cell_id: str
    hardware: HardwareReading


def build_hello(
    identity: Identity, cells: Iterable[CellReading], members: Iterable[MemberReading] = ()
) -> pb.Hello:
    """Who speaks, the static facts of its cells, and its GPUs under other nodes' cells."""
    return pb.Hello(
        node=identity.node,
        site=identity.site,
        agent_version=identity.version,
        incarnation=identity.incarnation,
        cells=[_facts(reading) for reading in cells],
        members=[pb.MemberFacts(cell_id=each.cell_id, gpus=_gpus(each.hardware)) for each in members],
    )


def build_telemetry(
    cells: Iterable[CellReading],
    paths: Iterable[PathReading],
    now: float,
    members: Iterable[MemberReading] = (),
) -> pb.Telemetry:
    """A full beat at `now` (seconds, the agent's monotonic clock); `seq` is left to the sender."""
    return pb.Telemetry(
        cells=[_cell_beat(reading, now) for reading in cells],
        paths=[_path_beat(path, now) for path in paths],
        members=[_member_beat(reading, now) for reading in members],
    )


def build_event(event: CellEvent, event_id: int, age_s: float = 0.0) -> pb.CellEvent:
    """An event under its id, `age_s` after it happened; `seq` is left to the sender."""
    return pb.CellEvent(
        event_id=event_id,
        cell_id=event.cell_id,
        kind=_EVENTS[event.kind],
        cause=_text(event.cause, MAX_DETAIL),
        xid=_count(event.xid, _UINT32_MAX),
        age_ms=min(_UINT32_MAX, max(0, round(age_s * 1000))),
    )


def build_goodbye(planned: bool, grace_s: float, reason: str) -> pb.Goodbye:
    """The agent leaves; `grace_s` is how long the cells' last weights should hold, in seconds."""
    return pb.Goodbye(planned=planned, grace_ms=_ms(grace_s), reason=_text(reason, MAX_DETAIL))


def _facts(reading: CellReading) -> pb.CellFacts:
    cell, facts = reading.cell, reading.engine.facts
    labels = list(cell.labels.items())[:MAX_LABELS]
    return pb.CellFacts(
        cell_id=cell.id,
        address=pb.Address(host=cell.address.host, port=cell.address.port),
        engine_kind=_text(facts.kind, MAX_NAME),
        engine_version=_text(facts.version, MAX_NAME),
        models=_models(facts.models),
        gpus=_gpus(reading.hardware),
        labels={_text(key, MAX_NAME): _text(value, MAX_NAME) for key, value in labels},
        member_nodes=cell.nodes,
        health_path=_text(facts.health_path, MAX_NAME),
        tls=cell.url.startswith("https:"),
    )


def _gpus(hardware: HardwareReading) -> list[pb.GpuFacts]:
    return [
        pb.GpuFacts(
            uuid=_text(gpu.uuid, MAX_NAME),
            name=_text(gpu.name, MAX_NAME),
            memory_mib=_count(gpu.memory_mib, _UINT64_MAX),
        )
        for gpu in hardware.gpus[:MAX_GPUS]
    ]


def _models(models: Sequence[Model]) -> list[pb.ModelFacts]:
    # A cut name would be another model's, so an overlong one is left out whole.
    fit = [model for model in models if 0 < len(model.id) <= MAX_NAME]
    return [
        pb.ModelFacts(
            id=_text(model.id, MAX_NAME),
            max_model_len=_count(model.max_model_len, _UINT32_MAX),
            base_model=_text(model.base_model, MAX_NAME),
        )
        for model in fit[:MAX_MODELS]
    ]


def _cell_beat(reading: CellReading, now: float) -> pb.CellBeat:
    engine, hardware = reading.engine, reading.hardware
    return pb.CellBeat(
        cell_id=reading.cell.id,
        signals=_signals(engine.signals, hardware.signals),
        sources=[_source(source, now) for source in (engine.source, *hardware.sources)],
        engine_state=_STATES[engine.state],
        serving_ms=_serving_ms(engine, now),
        in_flight=_count(engine.in_flight, _UINT32_MAX),
        requests=_totals(engine.totals),
        hardware=_health(hardware.health),
        hardware_source=_HARDWARE[hardware.source],
        work=_work(engine.work),
        compute_measure=_COMPUTE[hardware.compute],
    )


def _member_beat(reading: MemberReading, now: float) -> pb.MemberBeat:
    hardware = reading.hardware
    return pb.MemberBeat(
        cell_id=reading.cell_id,
        signals=_signals({}, hardware.signals),
        sources=[_source(source, now) for source in hardware.sources],
        hardware=_health(hardware.health),
        hardware_source=_HARDWARE[hardware.source],
    )


def _serving_ms(engine: EngineReading, now: float) -> int:
    if engine.state is not EngineState.SERVING or engine.serving_since is None:
        return 0
    return _ms(now - engine.serving_since, _UINT64_MAX)


def _signals(engine: Mapping[str, float], hardware: Mapping[str, float]) -> pb.Signals:
    """Each origin may speak only for its own signals."""
    values = {name: _figure(engine.get(name), _LIMITS[name]) for name in _ENGINE_SIGNALS}
    values |= {name: _figure(hardware.get(name), _LIMITS[name]) for name in _GPU_SIGNALS}
    return pb.Signals(**values)


def _source(source: SourceReading, now: float) -> pb.SourceBeat:
    return pb.SourceBeat(
        name=_text(source.name, MAX_NAME),
        status=_STATUSES[source.status],
        age_ms=None if source.read_at is None else _ms(now - source.read_at),
        detail=_text(source.detail, MAX_DETAIL),
    )


def _totals(totals: Totals | None) -> pb.RequestTotals | None:
    if totals is None:
        return None
    return pb.RequestTotals(
        ok=_count(totals.ok, _UINT64_MAX),
        client_errors=_count(totals.client_errors, _UINT64_MAX),
        throttled=_count(totals.throttled, _UINT64_MAX),
        server_errors=_count(totals.server_errors, _UINT64_MAX),
    )


def _work(work: Work | None) -> pb.WorkTotals | None:
    if work is None:
        return None
    return pb.WorkTotals(
        prompt_tokens=_count(work.prompt, _UINT64_MAX),
        cached_tokens=_count(work.cached, _UINT64_MAX),
        generated_tokens=_count(work.generated, _UINT64_MAX),
    )


def _health(health: Health | None) -> pb.HardwareHealth | None:
    if health is None:
        return None
    return pb.HardwareHealth(
        # A temperature, and the margin to a limit already passed, may be below zero.
        temperature_c=_finite(health.temperature_c),
        thermal_margin_c=_finite(health.thermal_margin_c),
        power_w=_figure(health.power_w),
        power_limit_w=_figure(health.power_limit_w),
        clock_event_reasons=_count(health.clock_event_reasons, _UINT64_MAX),
        pcie_replays=_count(health.pcie_replays, _UINT64_MAX),
        ecc_correctable=_count(health.ecc_correctable, _UINT64_MAX),
        ecc_uncorrectable=_count(health.ecc_uncorrectable, _UINT64_MAX),
        remapped_rows=_count(health.remapped_rows, _UINT64_MAX),
        last_xid=_count(health.last_xid, _UINT32_MAX),
        gpu_lost=health.gpu_lost,
        remap_pending=_flag(health.remap_pending),
        remap_failed=_flag(health.remap_failed),
    )


def _path_beat(path: PathReading, now: float) -> pb.PathBeat:
    return pb.PathBeat(
        gateway=_text(path.gateway, MAX_NAME),
        rtt_ms=_figure(path.rtt_ms),
        jitter_ms=_figure(path.jitter_ms),
        loss=_figure(path.loss, _FRACTION_LIMIT),
        method=_METHODS[path.method],
        age_ms=None if path.measured_at is None else _ms(now - path.measured_at),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _figure(value: float | None, limit: float = math.inf) -> float | None:
    """A measured, finite figure in [0, limit], or None."""
    return value if value is not None and math.isfinite(value) and 0 <= value <= limit else None


def _flag(value: bool | None) -> bool | None:
    return value if isinstance(value, bool) else None


def _count(value: int | None, limit: int) -> int | None:
    return value if value is not None and 0 <= value <= limit else None


def _ms(seconds: float, limit: int = _UINT32_MAX) -> int:
    """Whole milliseconds, at least 0 and at most `limit`."""
    if math.isnan(seconds):
        return limit
    return min(limit, int(max(0.0, min(seconds * 1000.0, float(limit)))))


def _text(text: str, limit: int) -> str:
    """At most `limit` characters that UTF-8 can carry (JSON may hold half a surrogate pair)."""
    if len(text) <= limit and text.isascii():
        return text
    return text[:limit].encode("utf-8", "replace").decode("utf-8")
