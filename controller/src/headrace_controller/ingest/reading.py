"""Reads the figures of a telemetry beat, once and all cells together.

It runs for every beat of every node. So a figure is taken out of the message one time only: what was read
is judged on the way, and written by later stages as it stands. And fields stand here one by one, because
a call that goes over eight of them costs more than they do; a test holds the names to the catalogue.
Names and remedies for what is not in order are for `figures.check_telemetry` to find.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace_controller.ingest.validation import FRACTION_LIMIT, MAX_CELLS, MAX_SOURCES
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS, GPU_SIGNALS

Floats = NDArray[np.float64]

TOTAL_KINDS: Final = ("ok", "client_errors", "throttled", "server_errors")
HEALTH_KINDS: Final = (
    "thermal_margin_c",
    "power_w",
    "power_limit_w",
    "clock_event_reasons",
    "pcie_replays",
    "ecc_correctable",
)
ENGINE_SOURCE: Final = "engine"

# The places of a cell's figures in a reading.
SIGNALS_AT: Final = slice(0, len(CELL_SIGNALS))
HEALTH_AT: Final = slice(SIGNALS_AT.stop, SIGNALS_AT.stop + len(HEALTH_KINDS))
IN_FLIGHT, SERVING_MS, ENGINE_AGE_MS, HARDWARE_AGE_MS, WORK = range(HEALTH_AT.stop, HEALTH_AT.stop + 5)
WIDTH: Final = WORK + 1

_NAN: Final = math.nan
_MOST: Final = sys.float_info.max
_MAX_XID: Final = 1_000_000
_HARDWARE_NAMES: Final = {pb.HARDWARE_SOURCE_DCGM: "dcgm", pb.HARDWARE_SOURCE_NVML: "nvml"}
# A later agent may use numbers that this build does not know: they say nothing here.
_ENGINE_STATES: Final = frozenset(pb.EngineState.values())
_HARDWARE_SOURCES: Final = frozenset(pb.HardwareSource.values())
# Members of enums are looked up slowly.
_STALE: Final = pb.SOURCE_STATUS_STALE
_NO_SOURCE: Final = pb.HARDWARE_SOURCE_UNSPECIFIED
_TENSOR: Final = pb.COMPUTE_MEASURE_TENSOR

_beat_of: Callable[[pb.CellBeat], tuple[Any, ...]] = attrgetter(
    *("cell_id", "signals", "sources", "engine_state", "serving_ms"),
    *("in_flight", "requests", "hardware", "hardware_source", "work", "compute_measure"),
)
_totals_of: Callable[[pb.RequestTotals], tuple[int, ...]] = attrgetter(*TOTAL_KINDS)


@dataclass(slots=True, eq=False)
class Reading:
    """The figures of k cells, in the order of the beat.

    `block` (k, WIDTH) has them at the places above, in the wire's units, NaN = absent or not finite; ages
    are NaN where none was given. `engine` and `hardware` are EngineState and HardwareSource numbers that
    this build knows, 0 = unsaid; a source stands still where its `…_stale` says so. `requests` are the
    messages behind `totals`, for what reads as 0 and may be absent. `told` says of which cells there was
    any word of the hardware's health, `lost` and `xids` (0 = none) what it was.
    `sound`: everything is in order; where it is not, `figures.check_telemetry` says what, if anything.
    """

    ids: list[str]
    block: Floats
    engine: list[int]
    hardware: list[int]
    engine_stale: list[bool]
    hardware_stale: list[bool]
    totals: list[tuple[int, ...]]
    requests: list[pb.RequestTotals]
    told: list[bool]
    lost: list[bool]
    xids: list[int]
    sound: bool

    def take(self, places: Sequence[int]) -> Reading:
        """The reading of some of its cells."""
        chosen = {name: getattr(self, name) for name in self.__slots__}
        for name, values in chosen.items():
            if isinstance(values, list):
                chosen[name] = [values[at] for at in places]
        return Reading(**chosen | {"block": self.block[list(places)]})


def read_beat(telemetry: pb.Telemetry) -> Reading:
    """Read a telemetry beat: the figures of its cells, and whether all of it is in order."""
    found = Reading([], _NO_CELLS, [], [], [], [], [], [], [], [], [], _is_sound(telemetry))
    figures: list[float] = []
    for beat in telemetry.cells:
        cell_id, signals, sources, state, serving_ms, in_flight, requests, health, kind, *did = _beat_of(beat)
        found.ids.append(cell_id)
        if kind not in _HARDWARE_SOURCES:
            kind = _NO_SOURCE
        figures += _read_signals(signals) or _mend(found, signals, CELL_SIGNALS)
        figures += _read_health(health) or _mend(found, health, HEALTH_KINDS)
        age_ms, stale, hardware_age_ms, hardware_stale = _read_sources(sources, _HARDWARE_NAMES.get(kind))
        if not in_flight and not beat.HasField("in_flight"):
            in_flight = _NAN
        figures += (in_flight, serving_ms, age_ms, hardware_age_ms, _read_work(*did))
        found.engine.append(state if state in _ENGINE_STATES else 0)
        found.hardware.append(kind)
        found.engine_stale.append(stale)
        found.hardware_stale.append(hardware_stale)
        found.totals.append(_totals_of(requests))
        found.requests.append(requests)
        found.told.append(beat.HasField("hardware"))
        found.lost.append(health.gpu_lost)
        xid = health.last_xid
        found.xids.append(xid if xid < _MAX_XID else _MAX_XID)
        if len(sources) > MAX_SOURCES:
            found.sound = False
    ids = found.ids
    if len(set(ids)) < len(ids):
        found.sound = False
    if ids:
        found.block = _array(figures)
    return found


def _is_sound(telemetry: pb.Telemetry) -> bool:
    """Whether all is in order besides the cells. Members' figures are not read here."""
    paths = telemetry.paths
    if telemetry.members or len(telemetry.cells) > MAX_CELLS or len(paths) > MAX_CELLS:
        return False
    for path in paths:
        if not (0.0 <= path.rtt_ms <= _MOST and 0.0 <= path.jitter_ms <= _MOST):
            return False
        if not 0.0 <= path.loss <= FRACTION_LIMIT:
            return False
    return True


def _read_signals(signals: pb.Signals) -> tuple[float, ...] | None:
    """The signals in the order of CELL_SIGNALS, NaN = absent; None where one is out of its bounds. NaN is
    within none, and only a figure that reads as 0 may be an absent one."""
    queue, ttft = signals.queue_depth, signals.ttft_p95_s
    error, kv_fill = signals.error_rate, signals.kv_fill
    gpu, vram = signals.gpu_util, signals.vram_util
    compute, memory = signals.compute_active, signals.memory_bw_util
    if not (
        0.0 <= queue <= _MOST
        and 0.0 <= ttft <= _MOST
        and 0.0 <= error <= FRACTION_LIMIT
        and 0.0 <= kv_fill <= FRACTION_LIMIT
        and 0.0 <= gpu <= FRACTION_LIMIT
        and 0.0 <= vram <= FRACTION_LIMIT
        and 0.0 <= compute <= FRACTION_LIMIT
        and 0.0 <= memory <= FRACTION_LIMIT
    ):
        return None
    has = signals.HasField
    return (
        queue if queue or has("queue_depth") else _NAN,
        ttft if ttft or has("ttft_p95_s") else _NAN,
        error if error or has("error_rate") else _NAN,
        kv_fill if kv_fill or has("kv_fill") else _NAN,
        gpu if gpu or has("gpu_util") else _NAN,
        vram if vram or has("vram_util") else _NAN,
        compute if compute or has("compute_active") else _NAN,
        memory if memory or has("memory_bw_util") else _NAN,
    )


def _read_health(health: pb.HardwareHealth) -> tuple[float, ...] | None:
    """The figures in the order of HEALTH_KINDS, NaN = absent; None where one is not finite. Counters need no
    bound: every number that the wire can carry is one that the arrays can hold."""
    margin, power, limit = health.thermal_margin_c, health.power_w, health.power_limit_w
    reasons, replays, ecc = health.clock_event_reasons, health.pcie_replays, health.ecc_correctable
    if not (
        -_MOST <= health.temperature_c <= _MOST
        and -_MOST <= margin <= _MOST
        and -_MOST <= power <= _MOST
        and -_MOST <= limit <= _MOST
    ):
        return None
    has = health.HasField
    return (
        margin if margin or has("thermal_margin_c") else _NAN,
        power if power or has("power_w") else _NAN,
        limit if limit or has("power_limit_w") else _NAN,
        reasons if reasons or has("clock_event_reasons") else _NAN,
        replays if replays or has("pcie_replays") else _NAN,
        ecc if ecc or has("ecc_correctable") else _NAN,
    )


def _read_work(work: pb.WorkTotals, measure: int) -> float:
    """Tokens that the engine has computed since its start; NaN where they are not told, or not the
    activity of the tensor pipes that they took."""
    if measure != _TENSOR:
        return _NAN
    prompt, generated, has = work.prompt_tokens, work.generated_tokens, work.HasField
    if not ((prompt or has("prompt_tokens")) and (generated or has("generated_tokens"))):
        return _NAN
    return float(prompt - min(work.cached_tokens, prompt) + generated)


def _mend(found: Reading, message: Any, names: Sequence[str]) -> Sequence[float]:
    """The figures of a message that is not in order, NaN = absent or not finite."""
    found.sound = False
    return _finite(message, names)


def _finite(message: Any, names: Sequence[str]) -> list[float]:
    """The figures of a message one by one; NaN = absent or not finite."""
    values = (getattr(message, name) if message.HasField(name) else _NAN for name in names)
    return [value if math.isfinite(value) else _NAN for value in values]


def _read_sources(sources: Sequence[pb.SourceBeat], wanted: str | None) -> tuple[float, bool, float, bool]:
    """The age of the engine's figures, ms, NaN = not given, and whether they stand still; and both of those
    from the source with the `wanted` name. Of two sources of one name the first counts."""
    engine = hardware = None
    for source in sources:
        name = source.name
        if name == ENGINE_SOURCE:
            engine = engine or source
        elif name == wanted:
            hardware = hardware or source
    engine_ms = hardware_ms = _NAN
    engine_stale = hardware_stale = False
    if engine is not None:
        engine_stale = engine.status == _STALE
        engine_ms = engine.age_ms or (0.0 if engine.HasField("age_ms") else _NAN)
    if hardware is not None:
        hardware_stale = hardware.status == _STALE
        hardware_ms = hardware.age_ms or (0.0 if hardware.HasField("age_ms") else _NAN)
    return engine_ms, engine_stale, hardware_ms, hardware_stale


def _array(figures: Sequence[float]) -> Floats:
    """(k, WIDTH). By way of bytes: an array of a list takes twice the time."""
    packed = bytearray(8 * len(figures))
    struct.pack_into(f"{len(figures)}d", packed, 0, *figures)
    return np.frombuffer(packed, dtype=np.float64).reshape(-1, WIDTH)


_NO_CELLS: Final = np.zeros((0, WIDTH))


class HardwareWord(NamedTuple):
    """What a node's beat says of its GPUs under another node's cell: `signals` in the order of GPU_SIGNALS,
    the source and its age, NaN = absent or not finite; whether that stands still; the last XID, 0 = none."""

    signals: list[float]
    source: int
    age_ms: float
    stale: bool
    xid: int


def read_member(beat: pb.MemberBeat) -> HardwareWord:
    """The figures of a member's GPUs."""
    kind = beat.hardware_source if beat.hardware_source in _HARDWARE_SOURCES else _NO_SOURCE
    _, _, age_ms, stale = _read_sources(beat.sources, _HARDWARE_NAMES.get(kind))
    values = _finite(beat.signals, GPU_SIGNALS)
    return HardwareWord(values, kind, age_ms, stale, min(beat.hardware.last_xid, _MAX_XID))
