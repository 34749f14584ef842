"""The exporter's page: DCGM's field names, labels and number formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace_lab.gpu.model import GpuFigures, GpuParameters


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """How a GPU is named; `index` is its number on the host."""

    index: int
    uuid: str
    hostname: str

    def labels(self, model: str) -> str:
        """The label set that each of its series carries."""
        pairs = {
            "gpu": str(self.index),
            "UUID": self.uuid,
            "pci_bus_id": f"00000000:{0x18 + self.index:02X}:00.0",
            "device": f"nvidia{self.index}",
            "modelName": model,
            "Hostname": self.hostname,
        }
        return ",".join(f'{name}="{_escape(value)}"' for name, value in pairs.items())


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU's part of a page."""

    identity: GpuIdentity
    parameters: GpuParameters
    figures: GpuFigures


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str
    text: str
    value: Callable[[GpuRow], str]


_FIELDS = (
    _Field(
        "DEV_SM_CLOCK",
        "gauge",
        "SM clock frequency (in MHz).",
        lambda r: str(round(r.parameters.sm_clock_mhz * r.figures.clock_share)),
    ),
    _Field(
        "DEV_MEM_CLOCK",
        "gauge",
        "Memory clock frequency (in MHz).",
        lambda r: str(r.parameters.memory_clock_mhz),
    ),
    _Field(
        "DEV_MEMORY_TEMP",
        "gauge",
        "Memory temperature (in C).",
        lambda r: f"{r.figures.memory_temperature_c:.0f}",
    ),
    _Field("DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda r: f"{r.figures.temperature_c:.0f}"),
    _Field("DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda r: f"{r.figures.power_w:.6f}"),
    _Field(
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
        lambda r: str(r.figures.energy_mj),
    ),
    _Field(
        "DEV_PCIE_REPLAY_COUNTER",
        "counter",
        "Total number of PCIe retries.",
        lambda r: str(r.figures.pcie_replays),
    ),
    _Field("DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", lambda r: str(r.figures.gpu_util)),
    _Field(
        "DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", lambda r: str(r.figures.mem_copy_util)
    ),
    _Field("DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", lambda r: str(r.figures.free_mib)),
    _Field("DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", lambda r: str(r.figures.used_mib)),
    _Field(
        "DEV_FB_RESERVED",
        "gauge",
        "Framebuffer memory reserved (in MiB).",
        lambda r: str(r.parameters.reserved_mib),
    ),
    _Field(
        "PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
        lambda r: f"{r.figures.gr_engine_active:.6f}",
    ),
    _Field(
        "PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda r: f"{r.figures.tensor_active:.6f}",
    ),
    _Field(
        "PROF_DRAM_ACTIVE",
        "gauge",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        lambda r: f"{r.figures.dram_active:.6f}",
    ),
)


_HEALTH = (
    _Field(
        "DEV_GPU_TEMP_LIMIT",
        "gauge",
        "Thermal limit of the GPU less its temperature (in C).",
        lambda r: f"{r.figures.thermal_margin_c:.0f}",
    ),
    _Field(
        "DEV_CLOCKS_EVENT_REASONS",
        "gauge",
        "Current reasons for lowered clocks (bitmask).",
        lambda r: str(r.figures.clock_event_reasons),
    ),
    _Field(
        "DEV_ENFORCED_POWER_LIMIT",
        "gauge",
        "Power limit in force (in W).",
        lambda r: f"{r.parameters.limit_w:.0f}",
    ),
    _Field(
        "DEV_ECC_SBE_VOL_TOTAL",
        "counter",
        "Corrected memory errors since the driver was loaded.",
        lambda r: str(r.figures.ecc_correctable),
    ),
)
"""Fields that an exporter gives only where its list of counters names them."""


def render(rows: Sequence[GpuRow], *, health: bool = False) -> str:
    """The page of these GPUs, one family after the other; no rows give an empty page. `health` adds what is
    off by default."""
    lines: list[str] = []
    labels = [row.identity.labels(row.parameters.name) for row in rows]
    for field in (*_FIELDS, *(_HEALTH if health else ())) if rows else ():
        name = f"DCGM_FI_{field.name}"
        lines += [f"# HELP {name} {field.text}", f"# TYPE {name} {field.kind}"]
        lines += [f"{name}{{{label}}} {field.value(row)}" for label, row in zip(labels, rows, strict=True)]
    return "".join(f"{line}\n" for line in lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
