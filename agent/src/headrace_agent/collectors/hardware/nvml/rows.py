"""The NVML process's rows as figures: checked, in the catalogue's units, under names that stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace_agent.collectors.hardware.figures import GpuFigures, with_parent, within
from headrace_agent.collectors.readings import Health

MIB: Final = 2**20
# GPM divides two counters that are not read at the same instant: a full load can come out above 100.
_FULL_WITH_ERROR: Final = 105.0
_ACCESSED: Final = "nvmlUtilization.memory"
# Each signal's fields in order of preference: in the row, as NVML calls it, the most it can be.
_SIGNALS: Final[Mapping[str, tuple[tuple[str, str, float], ...]]] = {
    "gpu_util": (("gpu", "nvmlUtilization.gpu", 100.0),),
    "compute_active": (
        ("tensor", "GPM_METRIC_ANY_TENSOR_UTIL", _FULL_WITH_ERROR),
        ("sm", "GPM_METRIC_SM_UTIL", _FULL_WITH_ERROR),
    ),
    "memory_bw_util": (
        ("dram", "GPM_METRIC_DRAM_BW_UTIL", _FULL_WITH_ERROR),
        ("accessed", _ACCESSED, 100.0),
    ),
}


class Rows:
    """Remembers every GPU ever seen, so that one that is gone still has its name and index.

    A GPU that falls off the bus is missing when NVML is started again, and those behind it move up;
    an index in a config must not come to mean another GPU by that.
    """

    def __init__(self) -> None:
        self._known: dict[str, GpuFigures] = {}
        self._indices: dict[str, int] = {}
        self._uuids: dict[int, str] = {}

    def take(self, rows: Iterable[Any], count: object) -> tuple[GpuFigures, ...]:
        """The figures of one reading. Where it has all of the `count` GPUs that NVML sees, a GPU that
        was there before and is not among them is gone."""
        found: dict[str, GpuFigures] = {}
        lost: list[GpuFigures] = []
        seen: set[int] = set()
        for row in rows:
            if not isinstance(row, dict) or not isinstance(row.get("index"), int):
                continue
            seen.add(row["index"])
            if row.get("lost") is True:
                lost += self._lost(row["index"])
                continue
            gpu = _figures(row)
            if gpu.uuid:
                self._uuids[row["index"]] = gpu.uuid
                gpu = replace(gpu, index=self._indices.setdefault(gpu.uuid, row["index"]))
                found[gpu.key] = gpu
        here = {gpu.uuid for gpu in [*found.values(), *lost]}
        if len(seen) == count:
            lost += [_gone(gpu) for gpu in self._known.values() if gpu.uuid not in here]
        present = {gpu.uuid for gpu in found.values()}
        kept = {key: gpu for key, gpu in self._known.items() if gpu.uuid not in present}
        self._known = kept | found
        with_health = (with_parent(gpu, found.get(gpu.uuid)) for gpu in found.values())
        return (*with_health, *lost)

    def _lost(self, index: int) -> list[GpuFigures]:
        """A GPU and all its instances, without figures."""
        uuid = self._uuids.get(index, "")
        known = [_gone(gpu) for gpu in self._known.values() if gpu.uuid == uuid]
        return known or [_gone(GpuFigures("", index))]


def _gone(gpu: GpuFigures) -> GpuFigures:
    lost = Health(gpu_lost=True)
    return replace(gpu, signals={}, origin={}, weaker_bandwidth=False, health=lost)


def _figures(row: Mapping[str, Any]) -> GpuFigures:
    used, total, reserved = (_count(row.get(name)) for name in ("used", "total", "reserved"))
    found = {signal: _first(row, fields) for signal, fields in _SIGNALS.items()}
    room = (total or 0) - (reserved or 0)
    vram = within(used / room, 0, 1) if used is not None and room > 0 else None
    found["vram_util"] = None if vram is None else ("nvmlDeviceGetMemoryInfo", vram)
    known = {signal: each for signal, each in found.items() if each is not None}
    return GpuFigures(
        uuid=_text(row.get("uuid")),
        index=row["index"],
        instance=_text(row.get("instance")),
        name=_text(row.get("name")),
        memory_mib=(total or 0) // MIB or None,
        signals={signal: share for signal, (_, share) in known.items()},
        origin={signal: name for signal, (name, _) in known.items()},
        health=_health(row),
        weaker_bandwidth=known.get("memory_bw_util", ("", 0.0))[0] == _ACCESSED,
        aliases=tuple(alias for each in _list(row.get("aliases")) if (alias := _text(each))),
    )


def _first(row: Mapping[str, Any], fields: Iterable[tuple[str, str, float]]) -> tuple[str, float] | None:
    """The first field with a figure, and that figure as a share."""
    for field, name, most in fields:
        value = _real(row.get(field), 0.0, most)
        if value is not None:
            return name, min(value / 100, 1.0)
    return None


def _health(row: Mapping[str, Any]) -> Health:
    return Health(
        temperature_c=_real(row.get("temperature"), 1, 200),
        thermal_margin_c=_real(row.get("margin"), -100, 200),
        power_w=_watts(row.get("power")),
        power_limit_w=_watts(row.get("power_limit")),
        clock_event_reasons=_count(row.get("clock_event_reasons")),
        pcie_replays=_count(row.get("pcie_replays")),
        ecc_correctable=_count(row.get("ecc_correctable")),
        ecc_uncorrectable=_count(row.get("ecc_uncorrectable")),
        remapped_rows=_count(row.get("remapped_rows")),
        remap_pending=_flag(row.get("remap_pending")),
        remap_failed=_flag(row.get("remap_failed")),
    )


def _real(value: object, low: float, high: float) -> float | None:
    return within(value, low, high) if isinstance(value, int | float) else None


def _watts(milliwatts: object) -> float | None:
    value = _real(milliwatts, 0, 1e8)
    return None if value is None else value / 1000


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: object) -> str:
    return value[:128] if isinstance(value, str) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
