"""The evidence of early warning: what each kind of health figure says against a GPU, a second."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, RowMemory
from headrace_controller.inventory.columns import HEALTH_AT
from headrace_controller.lifecycle import CellState
from headrace_controller.settings import EarlyWarningSettings
from headrace_shared.signals import INDEX

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

KINDS: Final = ("thermal", "thermal_clocks", "power", "pcie_replays", "ecc", "idle_compute")
"""In the order of all arrays of kinds. thermal: the margin to the thermal limit falls and will soon be
gone; thermal_clocks: clocks are lowered for heat; power: clocks are lowered for power while the pool's
are not, or the limit was lowered; pcie_replays and ecc: the counter grows faster than it may;
idle_compute: the GPU computes although no request is in the engine."""

LIMIT: Final[Floats] = np.array([3.0, 1.5, 3.0, 6.0, 6.0, 5.0])
"""(kinds,): where a chart's alert begins: seconds of full evidence, or counts."""
ALLOWANCE: Final[Floats] = np.array([0.1, 0.2, 0.3, 6.7 / 60, 1.27 / 60, 0.05])
"""(kinds,): how much evidence a second is no evidence. For counters it is Page's reference value
between a rate that is normal and one that is a fault: 2 and 16 replays a minute, 0.2 and 4
corrected errors a minute."""

# NVML's clocks event reasons.
_POWER_CAP: Final = 0x4
_HW_SLOWDOWN: Final = 0x8
_SW_THERMAL: Final = 0x20
_HW_THERMAL: Final = 0x40
_POWER_BRAKE: Final = 0x80
# Beyond it a float does not hold each bit; no source sets any of those.
_WHOLE: Final = 2.0**53
_HORIZON_S: Final = 10.0
_LEVEL_S: Final = 3.0
_SLOPE_S: Final = 15.0
_USUAL_S: Final = 300.0
_USUAL_SHARE: Final = 0.6
_DUTY_S: Final = 30.0
_FALLING: Final = 0.15
_NO_MARGIN_C: Final = 2.0
_LOWERED: Final = 0.9
_IDLE_COMPUTE: Final = 0.2
_COMPUTE: Final = INDEX["compute_active"]


class HealthReader:
    """Keeps what must be compared with earlier figures: levels, slopes, counters, limits."""

    def __init__(self, settings: EarlyWarningSettings, stale_after_s: float) -> None:
        self._settings = settings
        self._stale_after_s = stale_after_s
        self._memory = RowMemory(
            {
                "margin": np.nan,
                "slope": 0.0,
                "usual": np.nan,
                "capped": 0.0,
                "limit": np.nan,
                "pcie_replays": np.nan,
                "ecc_correctable": np.nan,
            }
        )

    def use(self, settings: EarlyWarningSettings, stale_after_s: float) -> None:
        """Other settings are in force from now on."""
        self._settings, self._stale_after_s = settings, stale_after_s

    def read(self, fleet: Fleet, now: float, elapsed: float) -> Floats:
        """(n, kinds): evidence less allowance over `elapsed` seconds; NaN = not measured."""
        n = fleet.size
        self._memory.follow(fleet)
        fresh = ~fleet.hardware_stale[:n] & ~(now - fleet.telemetry_at[:n] > self._stale_after_s)
        fresh &= ~(now - fleet.hardware_read_at[:n] > self._stale_after_s)
        health = np.where(fresh[:, None], fleet.health[:n], np.nan)
        beyond = np.zeros((n, len(KINDS)))
        beyond[:, 0] = self._thermal(health[:, HEALTH_AT["thermal_margin_c"]], elapsed)
        reasons = health[:, HEALTH_AT["clock_event_reasons"]]
        beyond[:, 1] = _bits(reasons, _SW_THERMAL | _HW_THERMAL | _HW_SLOWDOWN, unless=_POWER_BRAKE)
        beyond[:, 2] = self._power(fleet, reasons, health[:, HEALTH_AT["power_limit_w"]], elapsed)
        beyond[:, 5] = _idle(fleet, fresh)
        beyond -= ALLOWANCE
        beyond *= elapsed
        for kind, counter in ((3, "pcie_replays"), (4, "ecc_correctable")):
            grown = self._growth(counter, health[:, HEALTH_AT[counter]])
            beyond[:, kind] = grown - ALLOWANCE[kind] * elapsed
        return beyond

    def describe(self, fleet: Fleet, row: int, kind: str) -> str:
        """The figures behind a kind, for people."""
        health = dict(zip(HEALTH_AT, fleet.health[row].tolist(), strict=True))
        if kind == "thermal":
            slope = float(self._memory["slope"][row])
            return f"thermal margin {health['thermal_margin_c']:.1f} C, {slope * 60:+.1f} C a minute"
        if kind in ("thermal_clocks", "power"):
            reasons = health["clock_event_reasons"]
            bits = "unknown" if np.isnan(reasons) else f"0x{int(reasons):x}"
            return f"clock event reasons {bits}, power limit {health['power_limit_w']:.0f} W"
        if kind == "idle_compute":
            return f"compute active {fleet.signals[row, _COMPUTE]:.2f} while no request is in the engine"
        counter = "pcie_replays" if kind == "pcie_replays" else "ecc_correctable"
        return f"{counter.replace('_', ' ')} at {health[counter]:.0f}"

    def _thermal(self, margin: Floats, elapsed: float) -> Floats:
        """How far the margin of ten seconds ahead is below the one to keep, while it falls."""
        memory, known = self._memory, ~np.isnan(margin)
        level, slope, usual = memory["margin"], memory["slope"], memory["usual"]
        first = known & np.isnan(level)
        level[first], slope[first], usual[first] = margin[first], 0.0, margin[first]
        before = level.copy()
        near = 1.0 - np.exp(-elapsed / _LEVEL_S)
        level[known] += (near * (margin - level))[known]
        trend = (level - before) / elapsed
        slope[known] += ((1.0 - np.exp(-elapsed / _SLOPE_S)) * (trend - slope))[known]
        ahead = level + np.minimum(slope, 0.0) * _HORIZON_S
        usual[known] += ((1.0 - np.exp(-elapsed / _USUAL_S)) * (margin - usual))[known]
        # Some GPUs live near their limit: for them it is what they usually have that counts.
        keep = np.clip(_USUAL_SHARE * usual, 1.0, self._settings.thermal_margin_c)
        short = np.clip(1.0 - ahead / keep, 0.0, 2.0)
        gone = level < np.minimum(_NO_MARGIN_C, keep)
        falling = np.where(gone, 1.0, np.clip(-slope / _FALLING - 1.0, 0.0, 1.0))
        return np.where(known, short * falling, np.nan)

    def _power(self, fleet: Fleet, reasons: Floats, limit: Floats, elapsed: float) -> Floats:
        """Being capped more than the pool is, the power brake, or a limit below the one there was."""
        memory = self._memory
        capped = _bits(reasons, _POWER_CAP)
        duty = memory["capped"]
        share = 1.0 - np.exp(-elapsed / _DUTY_S)
        duty[:] = np.where(
            np.isnan(duty), capped, duty + share * np.where(np.isnan(capped), 0.0, capped - duty)
        )
        ready = fleet.state[: fleet.size] == CellState.READY
        excess = duty - fleet.pools().row_medians(duty, ready) if (duty > 0).any() else np.zeros(len(duty))
        memory["limit"][:] = np.fmax(memory["limit"], limit)
        lowered = limit < _LOWERED * memory["limit"]
        worst = np.fmax(np.clip(np.nan_to_num(excess), 0.0, 1.0), np.nan_to_num(_bits(reasons, _POWER_BRAKE)))
        evidence = np.where(lowered, 1.0, worst)
        return np.where(np.isnan(reasons) & np.isnan(limit), np.nan, evidence)

    def _growth(self, counter: str, total: Floats) -> Floats:
        """Counts since the last look; a counter that falls, or is seen first, has a new base."""
        before = self._memory[counter]
        grown = np.where(np.isnan(total), np.nan, np.fmax(np.nan_to_num(total - before), 0.0))
        before[:] = np.where(np.isnan(total), before, total)
        return grown


def _bits(reasons: Floats, wanted: int, unless: int = 0) -> Floats:
    """1 where any wanted bit is set and none of `unless` is, 0 where not, NaN where unknown."""
    known = reasons < _WHOLE  # which NaN is not
    bits = np.where(known, reasons, 0.0).astype(np.int64)
    on = ((bits & wanted) != 0) & ((bits & unless) == 0)
    return np.where(known, on.astype(np.float64), np.nan)


def _idle(fleet: Fleet, fresh: Flags) -> Floats:
    """Compute activity beyond what an idle engine leaves, while no request is in it."""
    n = fleet.size
    active, in_flight = fleet.signals[:n, _COMPUTE], fleet.in_flight[:n]
    known = fresh & ~fleet.engine_stale[:n] & ~np.isnan(active) & ~np.isnan(in_flight)
    # An engine that loads, or is warmed up, computes without a request.
    idle = (in_flight == 0) & (fleet.state[:n] == CellState.READY)
    evidence = np.where(idle, np.clip(active - _IDLE_COMPUTE, 0.0, 1.0), 0.0)
    return np.where(known, evidence, np.nan)
