"""What collectors hand to the heartbeat: plain, frozen readings, nothing of how they were got.

A figure that was not measured is missing from its mapping or None, never 0. Times are the
agent's monotonic clock, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Status(Enum):
    """How a source is; NO_DATA answers with nothing to say, STALE with figures that do not move."""

    OK = "ok"
    NO_DATA = "no_data"
    FAILED = "failed"
    STALE = "stale"


class EngineState(Enum):
    """An engine as its agent sees it; HUNG accepts connections and answers nothing."""

    LOADING = "loading"
    SERVING = "serving"
    DOWN = "down"
    HUNG = "hung"
    SLEEPING = "sleeping"


class HardwareSource(Enum):
    """Where hardware figures came from; NONE = no figures at all."""

    DCGM = "dcgm"
    NVML = "nvml"
    NONE = "none"


class Compute(Enum):
    """What compute_active measures: the tensor pipes, the multiprocessors, or anything on the GPU."""

    TENSOR = "tensor"
    SM = "sm"
    ENGINE = "engine"


class PathMethod(Enum):
    """How a round trip was measured."""

    ICMP = "icmp"
    TCP_CONNECT = "tcp_connect"


@dataclass(frozen=True, slots=True)
class SourceReading:
    """One source's condition; `read_at` is None where it was never read. A `spare` one is not
    there to be read, and another gives all that is asked of it."""

    name: str
    status: Status
    read_at: float | None = None
    detail: str = ""
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """How often a source was asked since the agent started, and how often in vain."""

    tries: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Requests counted since the agent started, corrected for engine restarts: they never fall."""

    ok: int | None = None
    client_errors: int | None = None
    throttled: int | None = None
    server_errors: int | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens as the engine counts them since its start; `cached` are those of its prompts that it found in
    its prefix cache."""

    prompt: int
    cached: int
    generated: int


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of an engine's model list; `max_model_len` in tokens."""

    id: str
    max_model_len: int | None = None
    base_model: str = ""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What does not change while an engine runs. `health_path` is where it says cheaply whether it is
    well; "" while that is not known."""

    kind: str = ""
    version: str = ""
    models: tuple[Model, ...] = ()
    health_path: str = ""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """An engine now. `signals` holds catalogue names (queue_depth, ttft_p95_s, error_rate,
    kv_fill); `serving_since` is when it began to serve without a break; `missing` names families
    that its page should have and has not."""

    state: EngineState
    signals: Mapping[str, float] = field(default_factory=dict)
    in_flight: int | None = None
    totals: Totals | None = None
    serving_since: float | None = None
    facts: EngineFacts = EngineFacts()
    source: SourceReading = SourceReading("engine", Status.NO_DATA)
    missing: tuple[str, ...] = ()
    work: Work | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """Static facts of one GPU; `memory_mib` in MiB."""

    uuid: str
    name: str = ""
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Health facts of the worst GPU of a set; units as in HardwareHealth on the wire."""

    temperature_c: float | None = None
    thermal_margin_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_event_reasons: int | None = None
    pcie_replays: int | None = None
    ecc_correctable: int | None = None
    ecc_uncorrectable: int | None = None
    remapped_rows: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    last_xid: int | None = None
    gpu_lost: bool = False


@dataclass(frozen=True, slots=True)
class HardwareReading:
    """The GPUs under one cell, now. `signals` holds gpu_util, vram_util, compute_active and
    memory_bw_util, each the worst GPU's; `compute` says what compute_active measures, None where it is
    not the same on all."""

    source: HardwareSource = HardwareSource.NONE
    signals: Mapping[str, float] = field(default_factory=dict)
    health: Health | None = None
    gpus: tuple[Gpu, ...] = ()
    sources: tuple[SourceReading, ...] = ()
    compute: Compute | None = None


@dataclass(frozen=True, slots=True)
class PathReading:
    """The path to one gateway; `loss` is the share of recent echoes lost, 0 to 1. `detail` says why
    figures are missing, or why they are not by the preferred method."""

    gateway: str
    rtt_ms: float | None = None
    jitter_ms: float | None = None
    loss: float | None = None
    method: PathMethod = PathMethod.ICMP
    measured_at: float | None = None
    detail: str = ""


class EventKind(Enum):
    """What cannot wait for the next beat."""

    ENGINE_DOWN = "engine_down"
    ENGINE_LOADING = "engine_loading"
    ENGINE_SERVING = "engine_serving"
    ENGINE_HUNG = "engine_hung"
    ENGINE_SLEEPING = "engine_sleeping"
    XID = "xid"
    GPU_LOST = "gpu_lost"
    DRAIN_FINISHED = "drain_finished"


@dataclass(frozen=True, slots=True)
class CellEvent:
    """Something that happened to a cell, with its cause in words."""

    cell_id: str
    kind: EventKind
    cause: str
    xid: int | None = None
