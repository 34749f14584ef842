"""The DCGM exporter's page as figures per GPU and per MIG instance.

Units on the page: GPU_UTIL and MEM_COPY_UTIL 0–100, PROF_* 0–1, FB_* MiB, °C, W, mJ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace_agent.collectors.exposition import Sample
from headrace_agent.collectors.hardware.figures import GpuFigures, with_parent, within
from headrace_agent.collectors.readings import Health

PREFIX: Final = "DCGM_FI_"

# Older DCGM versions leak these "blank" values where a figure does not exist.
BLANK_INT64: Final = 9223372036854775792.0
BLANK_INT32: Final = 2147483632.0
BLANK_DOUBLE: Final = 140737488355328.0

ENERGY: Final = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
XID: Final = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR")
COMPUTE: Final = (
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)
DRAM: Final = "DCGM_FI_PROF_DRAM_ACTIVE"
COPY: Final = "DCGM_FI_DEV_MEM_COPY_UTIL"
UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"
USED: Final = "DCGM_FI_DEV_FB_USED"
FREE: Final = "DCGM_FI_DEV_FB_FREE"
RESERVED: Final = "DCGM_FI_DEV_FB_RESERVED"

# In DCGM 4.5 and 4.6 the percentage under its new name, later a ratio. A full GPU is common and one
# that is busy for exactly 1 % of the time is not, so 1 is read as a ratio.
UTIL_RATIO: Final = "DCGM_FI_DEV_GPU_UTIL_RATIO"
# DCGM 4 renamed fields, and its newest releases add some in other units: the name that is read here,
# and what one unit of the newer field is in the older one's.
RENAMED: Final[Mapping[str, tuple[str, float]]] = {
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": (COMPUTE[0], 1.0),
    "DCGM_FI_PROF_SM_UTIL_RATIO": (COMPUTE[1], 1.0),
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": (COMPUTE[2], 1.0),
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": (DRAM, 1.0),
    UTIL_RATIO: (UTIL, 100.0),
    "DCGM_FI_DEV_MEMORY_UTIL_RATIO": (COPY, 100.0),
    "DCGM_FI_DEV_FB_USED_BYTES": (USED, 2.0**-20),
    "DCGM_FI_DEV_FB_FREE_BYTES": (FREE, 2.0**-20),
    "DCGM_FI_DEV_FB_RESERVED_BYTES": (RESERVED, 2.0**-20),
    "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": (ENERGY, 1000.0),
}

# Each fact's field, in order of preference; the second of a pair is the same field's newer name.
TEMPERATURE: Final = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS")
MARGIN: Final = ("DCGM_FI_DEV_GPU_TEMP_LIMIT", "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS")
POWER: Final = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS")
POWER_LIMIT: Final = (
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT",
)
REASONS: Final = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
REPLAYS: Final = ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL")
SINGLE_BIT: Final = ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL")
DOUBLE_BIT: Final = ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL")
REMAPPED: Final = (
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"),
)
REMAP_PENDING: Final = "DCGM_FI_DEV_ROW_REMAP_PENDING"
REMAP_FAILED: Final = "DCGM_FI_DEV_ROW_REMAP_FAILURE"

WANTED: Final = frozenset(
    [*RENAMED, REMAP_PENDING, REMAP_FAILED]
    + [ENERGY, DRAM, COPY, UTIL, USED, FREE, RESERVED]
    + [name for names in (XID, COMPUTE, TEMPERATURE, MARGIN, POWER, POWER_LIMIT) for name in names]
    + [name for names in (REASONS, REPLAYS, SINGLE_BIT, DOUBLE_BIT, *REMAPPED) for name in names]
)


@dataclass(slots=True)
class _Row:
    uuid: str
    index: int | None
    instance: str
    name: str
    values: dict[str, float] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """Note a figure, under the name and in the unit that is read here."""
        known = name
        if name in RENAMED:
            known, value = _in_older_terms(name, value)
        before = self.written.get(known)
        if before is None or before in RENAMED or (known in XID and not self.values[known]):
            self.values[known] = value
            self.written[known] = name


def read_gpus(samples: Iterable[Sample]) -> tuple[GpuFigures, ...]:
    """One entry per GPU and per MIG instance, in the page's order.

    What is absent, blank, NaN, negative or out of range is missing. An instance keeps its own
    signals, and takes the health facts that only its GPU has (temperature, power) from there.
    """
    rows: dict[tuple[str, str], _Row] = {}
    # All of a GPU's series mostly have the very same labels.
    by_labels: dict[int, _Row | None] = {}
    for sample in samples:
        labels = sample.labels
        if id(labels) not in by_labels:
            by_labels[id(labels)] = _row_of(rows, labels)
        row = by_labels[id(labels)]
        if row is not None:
            row.add(sample.name, sample.value)
    gpus = {key: _figures(row) for key, row in rows.items()}
    return tuple(with_parent(each, gpus.get((each.uuid, ""))) for each in gpus.values())


def gpu_key(labels: Mapping[str, str]) -> tuple[str, str]:
    """Whose row it is: (UUID, GPU instance id), each "" where the row has none."""
    uuid = labels.get("UUID") or labels.get("uuid") or labels.get("gpu_uuid") or ""
    return uuid, labels.get("GPU_I_ID", "")


def _row_of(rows: dict[tuple[str, str], _Row], labels: Mapping[str, str]) -> _Row | None:
    key = gpu_key(labels)
    uuid = key[0]
    if not uuid or len(uuid) > 128:
        return None
    number = labels.get("gpu", "")
    if key not in rows:
        index = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else None
        rows[key] = _Row(uuid, index, key[1], labels.get("modelName") or labels.get("model_name") or "")
    return rows[key]


def _figures(row: _Row) -> GpuFigures:
    values = row.values
    used, free = _count(values, (USED,)), _count(values, (FREE,))
    total = None if used is None or free is None else used + free + (_count(values, (RESERVED,)) or 0)
    vram = used / (used + free) if used is not None and free is not None and used + free else None
    found = {
        "gpu_util": _first(values, (UTIL,), 100.0),
        "vram_util": None if vram is None else (USED, vram),
        "compute_active": _first(values, COMPUTE, 1.0),
        "memory_bw_util": _first(values, (DRAM,), 1.0) or _first(values, (COPY,), 100.0),
    }
    known = {signal: each for signal, each in found.items() if each is not None}
    return GpuFigures(
        uuid=row.uuid,
        index=row.index,
        instance=row.instance,
        name=row.name,
        memory_mib=total or None,
        signals={signal: share for signal, (_, share) in known.items()},
        origin={signal: row.written[name] for signal, (name, _) in known.items()},
        health=_health(values),
        energy_mj=within(values.get(ENERGY), 0.0, BLANK_INT64 - 2048),
        weaker_bandwidth=known.get("memory_bw_util", ("", 0.0))[0] == COPY,
    )


def _health(values: Mapping[str, float]) -> Health:
    remapped = [rows for names in REMAPPED if (rows := _count(values, names)) is not None]
    return Health(
        temperature_c=_real(values, TEMPERATURE, 1.0, 200.0),
        thermal_margin_c=_real(values, MARGIN, -100.0, 200.0),
        power_w=_real(values, POWER, 0.0, 1e5),
        power_limit_w=_real(values, POWER_LIMIT, 1.0, 1e5),
        clock_event_reasons=_count(values, REASONS),
        pcie_replays=_count(values, REPLAYS),
        ecc_correctable=_count(values, SINGLE_BIT),
        ecc_uncorrectable=_count(values, DOUBLE_BIT),
        remapped_rows=sum(remapped) if remapped else None,
        remap_pending=_flag(values, REMAP_PENDING),
        remap_failed=_flag(values, REMAP_FAILED),
        last_xid=_count(values, XID),
    )


def _first(values: Mapping[str, float], names: Iterable[str], full: float) -> tuple[str, float] | None:
    """The first field that has a figure, and that figure as a share of `full`."""
    for name in names:
        found = values.get(name)
        if found is not None and (value := within(found, 0.0, full)) is not None:
            return name, value / full
    return None


def _real(values: Mapping[str, float], names: Iterable[str], low: float, high: float) -> float | None:
    for name in names:
        found = values.get(name)
        if found is not None and (value := within(found, low, min(high, BLANK_DOUBLE - 1))) is not None:
            return value
    return None


def _flag(values: Mapping[str, float], name: str) -> bool | None:
    value = within(values.get(name), 0.0, 1.0)
    return None if value is None else value > 0


def _in_older_terms(name: str, value: float) -> tuple[str, float]:
    known, factor = RENAMED[name]
    if name == UTIL_RATIO and value > 1:
        return known, value
    return known, value * factor


def _count(values: Mapping[str, float], names: Iterable[str]) -> int | None:
    for name in names:
        found = values.get(name)
        if found is not None and (value := within(found, 0.0, BLANK_INT32 - 1)) is not None:
            return int(value)
    return None
