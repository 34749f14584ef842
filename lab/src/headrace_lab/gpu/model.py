"""A GPU as a pure function of its load and time: activity, memory, power, temperature, energy."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuParameters:
    """One kind of GPU. Raises ValueError that names every figure out of range."""

    name: str = "NVIDIA H100 80GB HBM3"
    memory_mib: int = 81_559
    reserved_mib: int = 617
    weights_mib: int = 15_300
    """The model's weights, held while an engine runs."""
    kv_mib: int = 56_000
    """The KV cache, held whole while an engine runs, as vLLM does."""
    preallocates: bool = True
    """False: of the KV cache only what is filled counts as used."""
    idle_w: float = 70.0
    limit_w: float = 700.0
    ambient_c: float = 30.0
    full_load_c: float = 78.0
    """Temperature that constant full power leads to."""
    thermal_time_constant_s: float = 20.0
    sm_clock_mhz: int = 1980
    memory_clock_mhz: int = 2619

    def __post_init__(self) -> None:
        problems = []
        if self.reserved_mib + self.weights_mib + self.kv_mib > self.memory_mib:
            problems.append("reserved_mib, weights_mib and kv_mib together are more than memory_mib")
        if not 0 < self.idle_w < self.limit_w < math.inf:
            problems.append("idle_w must be above 0 and below limit_w")
        if not 0 < self.thermal_time_constant_s < math.inf:
            problems.append("thermal_time_constant_s must be above 0")
        if problems:
            raise ValueError("; ".join(problems))


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What an engine asks of its GPU; shares in [0, 1].

    `present` is False where no engine runs: then nothing holds memory.
    """

    busy: float = 0.0
    tensor: float = 0.0
    bandwidth: float = 0.0
    kv_fill: float = 0.0
    present: bool = False


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """A GPU at one moment, in DCGM's units: shares 0-1, MiB, W, °C; energy in mJ since its start."""

    gr_engine_active: float
    tensor_active: float
    dram_active: float
    gpu_util: int
    mem_copy_util: int
    used_mib: int
    free_mib: int
    power_w: float
    temperature_c: float
    memory_temperature_c: float
    energy_mj: int


class Gpu:
    """One GPU. The load given last holds until the next one is given; `now` must not go back."""

    def __init__(self, parameters: GpuParameters, now: float) -> None:
        self.parameters = parameters
        self._load = GpuLoad()
        self._at = now
        self._temperature_c = self._steady_c(self._power_w(self._load))
        self._energy_j = 0.0

    def follow(self, load: GpuLoad, now: float) -> None:
        """From `now` on the load is this one."""
        self._advance(now)
        self._load = load

    def figures(self, now: float) -> GpuFigures:
        """The figures at `now`."""
        self._advance(now)
        p, load = self.parameters, self._load
        used = self._used_mib()
        return GpuFigures(
            gr_engine_active=load.busy,
            tensor_active=load.tensor,
            dram_active=load.bandwidth,
            gpu_util=round(100 * load.busy),
            mem_copy_util=round(100 * load.bandwidth),
            used_mib=used,
            free_mib=p.memory_mib - p.reserved_mib - used,
            power_w=self._power_w(load),
            temperature_c=self._temperature_c,
            memory_temperature_c=self._temperature_c + 8.0,
            energy_mj=int(self._energy_j * 1000),
        )

    def _advance(self, now: float) -> None:
        seconds = max(0.0, now - self._at)
        power_w = self._power_w(self._load)
        steady_c = self._steady_c(power_w)
        keep = math.exp(-seconds / self.parameters.thermal_time_constant_s)
        self._temperature_c = steady_c + (self._temperature_c - steady_c) * keep
        self._energy_j += power_w * seconds
        self._at = max(self._at, now)

    def _power_w(self, load: GpuLoad) -> float:
        """Memory traffic takes about 45 % of the span above idle, the tensor pipes the rest."""
        p = self.parameters
        return p.idle_w + (p.limit_w - p.idle_w) * min(1.0, 0.45 * load.bandwidth + 0.55 * load.tensor)

    def _steady_c(self, power_w: float) -> float:
        p = self.parameters
        return p.ambient_c + (p.full_load_c - p.ambient_c) * power_w / p.limit_w

    def _used_mib(self) -> int:
        p, load = self.parameters, self._load
        if not load.present:
            return 0
        return p.weights_mib + round(p.kv_mib * (1.0 if p.preallocates else load.kv_fill))
