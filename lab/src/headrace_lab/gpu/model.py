"""A GPU as a pure function of its load, its stress and time.

Activity and memory follow the load; power heats a thermal mass; a GPU that is too hot lowers its
clocks, which cools it and slows the engine. A neighbour on the host link, memory errors and XIDs come
from outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

SW_THERMAL: Final = 0x20
"""NVML's clocks event reason: lowered for heat by software."""
CLOCK_PER_DEGREE: Final = 0.08
"""Share of the clock that each degree beyond the throttling temperature takes."""
LEAST_CLOCK: Final = 0.3
_STEP_S: Final = 0.25
_EXPONENT: Final = 2.0
"""Power above idle goes with the clock to this power: voltage falls with frequency."""


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
    throttle_c: float = 87.0
    """Temperature beyond which clocks are lowered."""
    replays_per_min: float = 60.0
    """PCIe replays a minute under full contention; a link that is no more than half taken has none."""
    thermal_time_constant_s: float = 20.0
    sm_clock_mhz: int = 1980
    memory_clock_mhz: int = 2619

    def __post_init__(self) -> None:
        problems = []
        if self.reserved_mib + self.weights_mib + self.kv_mib > self.memory_mib:
            problems.append("reserved_mib, weights_mib and kv_mib together are more than memory_mib")
        if not 0 < self.idle_w < self.limit_w < math.inf:
            problems.append("idle_w must be above 0 and below limit_w")
        if not self.ambient_c < self.throttle_c < math.inf:
            problems.append("throttle_c must be above ambient_c")
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
class GpuStress:
    """What others do to a GPU: power in W that a foreign load on it turns into heat (at most the
    board's limit counts), the share [0, 1) of the host link that a neighbour takes, corrected
    memory errors a minute, the share of its cooling that is left (above 1 = more than usual), and PCIe
    replays a minute that come without contention."""

    heat_w: float = 0.0
    pcie_contention: float = 0.0
    ecc_per_min: float = 0.0
    cooling: float = 1.0
    replays_per_min: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """A GPU at one moment, in DCGM's units: shares 0-1, MiB, W, °C; energy in mJ since its start.

    `clock_share` is the SM clock over the one it would have when cool. `pcie_replays` and
    `ecc_correctable` count since the start; `last_xid` is 0 where there was none.
    """

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
    clock_share: float = 1.0
    thermal_margin_c: float = math.inf
    clock_event_reasons: int = 0
    pcie_replays: int = 0
    ecc_correctable: int = 0
    last_xid: int = 0


class Gpu:
    """One GPU. Load and stress given last hold until the next are given; `now` must not go back."""

    def __init__(self, parameters: GpuParameters, now: float) -> None:
        self.parameters = parameters
        self._load = GpuLoad()
        self._stress = GpuStress()
        self._at = now
        self._clock_share = 1.0
        self._replays = self._ecc = 0.0
        self.last_xid = 0
        self._power_w = 0.0
        self._draw()
        self._temperature_c = self._steady_c(self._power_w)
        self._energy_j = 0.0

    def follow(self, load: GpuLoad, now: float) -> None:
        """From `now` on the load is this one."""
        self._advance(now)
        self._load = load
        self._draw()

    def suffer(self, stress: GpuStress, now: float) -> None:
        """From `now` on the stress is this one."""
        self._advance(now)
        self._stress = stress
        self._draw()

    def slowdown(self, now: float, pcie_share: float = 0.0) -> float:
        """Factor on the duration of an engine's steps that heat and contention make, at least 1.
        `pcie_share` of an undisturbed step's time goes over the host link."""
        self._advance(now)
        contention = self._stress.pcie_contention
        return 1.0 / self._clock_share + pcie_share * contention / (1.0 - contention)

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
            power_w=self._power_w,
            temperature_c=self._temperature_c,
            memory_temperature_c=self._temperature_c + 8.0,
            energy_mj=int(self._energy_j * 1000),
            clock_share=self._clock_share,
            thermal_margin_c=p.throttle_c - self._temperature_c,
            clock_event_reasons=SW_THERMAL if self._clock_share < 1.0 else 0,
            pcie_replays=int(self._replays),
            ecc_correctable=int(self._ecc),
            last_xid=self.last_xid,
        )

    def _advance(self, now: float) -> None:
        seconds = now - self._at
        if seconds <= 0:
            return
        self._at = now
        crowded = max(0.0, 2 * self._stress.pcie_contention - 1)
        per_min = self.parameters.replays_per_min * crowded + self._stress.replays_per_min
        self._replays += seconds / 60 * per_min
        self._ecc += seconds / 60 * self._stress.ecc_per_min
        # Where heat decides the clock and the clock the heat, only short steps are true.
        steps = math.ceil(seconds / _STEP_S) if self._may_throttle() else 1
        for _ in range(steps):
            self._warm(seconds / steps)

    def _may_throttle(self) -> bool:
        highest = max(self._temperature_c, self._steady_c(self._power_w))
        return highest > self.parameters.throttle_c or self._clock_share < 1.0

    def _warm(self, seconds: float) -> None:
        steady_c = self._steady_c(self._power_w)
        # What carries heat away less well takes longer to come to rest, and the heat capacity stays.
        keep = math.exp(-seconds * self._stress.cooling / self.parameters.thermal_time_constant_s)
        self._temperature_c = steady_c + (self._temperature_c - steady_c) * keep
        self._energy_j += self._power_w * seconds
        beyond = max(0.0, self._temperature_c - self.parameters.throttle_c)
        share = max(LEAST_CLOCK, 1.0 - CLOCK_PER_DEGREE * beyond)
        if share != self._clock_share:
            self._clock_share = share
            self._draw()

    def _draw(self) -> None:
        """Find the power that is drawn now. Memory traffic takes about 45 % of the span above idle, the
        tensor pipes the rest; a foreign load's comes on top."""
        p, load = self.parameters, self._load
        own = (p.limit_w - p.idle_w) * min(1.0, 0.45 * load.bandwidth + 0.55 * load.tensor)
        foreign = min(self._stress.heat_w, p.limit_w)
        self._power_w = p.idle_w + (own + foreign) * self._clock_share**_EXPONENT

    def _steady_c(self, power_w: float) -> float:
        p = self.parameters
        return p.ambient_c + (p.full_load_c - p.ambient_c) * power_w / p.limit_w / self._stress.cooling

    def _used_mib(self) -> int:
        p, load = self.parameters, self._load
        if not load.present:
            return 0
        return p.weights_mib + round(p.kv_mib * (1.0 if p.preallocates else load.kv_fill))
