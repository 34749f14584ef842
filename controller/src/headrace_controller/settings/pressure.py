"""`pressure`: from signals to one figure for each cell."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace_shared.config import Settings
from headrace_shared.signals import INDEX, NAMES, NETWORK_SIGNALS, SIGNALS


class RangeSettings(Settings):
    """Overrides one signal's range (its unit is the catalogue's) or its weight."""

    low: float | None = None
    high: float | None = None
    weight: float | None = Field(None, ge=0, le=1)


class EarlyWarningSettings(Settings):
    """What GPUs say before the engine's own figures move.

    An alert adds up to `weight` to a cell's pressure. `thermal_margin_c` is the distance to the
    thermal limit that a falling margin should keep, in degrees. An alert without fresh figures
    fades with the time constant `forget_s`. With `drain`, a cell whose alert has lasted for
    `drain_after_s` is drained, one of a pool at a time and only while half of the pool stays READY; an
    operator puts it back.
    """

    enabled: bool = True
    weight: float = Field(0.25, ge=0, le=1)
    thermal_margin_c: float = Field(10.0, gt=0, le=50)
    forget_s: float = Field(30.0, gt=0, le=3600)
    drain: bool = False
    drain_after_s: float = Field(30.0, ge=0, le=86400)


class PressureSettings(Settings):
    """How signals become one pressure.

    `quorum` is the least number of signals that score a cell; below it the last score is held for
    `hold_s` and then decays to the pool's median over `decay_s`. `smoothing_s` is the time
    constant of the smoothed score; while nothing changes, what is in force is the mean of up to
    `settle_s`, 0 = the smoothed score itself. The error rate is estimated over about `error_samples`
    requests, and counts once `error_min_samples` were seen. The TTFT at which a pool counts as full
    is its `ttft_slo_s` (pools.MODEL), else, with `learn_ttft`, `ttft_factor` times what its cells
    need without load, else the signal's `high`.
    """

    scorer: Literal["v2", "v3"] = "v3"
    signals: dict[str, RangeSettings] = Field(default_factory=dict)
    quorum: int = Field(3, ge=1, le=10)
    hold_s: float = Field(5.0, ge=0, le=600)
    decay_s: float = Field(30.0, gt=0, le=3600)
    stale_after_s: float = Field(5.0, ge=0.5, le=600)
    smoothing_s: float = Field(1.0, ge=0, le=60)
    settle_s: float = Field(300.0, ge=0, le=3600)
    error_samples: float = Field(50.0, ge=2, le=100000)
    error_min_samples: float = Field(5.0, ge=1, le=100000)
    learn_ttft: bool = True
    ttft_factor: float = Field(5.0, ge=1.2, le=100)
    early_warning: EarlyWarningSettings = EarlyWarningSettings()

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name, change in self.signals.items():
            if name not in INDEX:
                raise ValueError(f"signals: {name!r} is no signal; the signals are {', '.join(NAMES)}")
            signal = SIGNALS[INDEX[name]]
            low = signal.low if change.low is None else change.low
            high = signal.high if change.high is None else change.high
            if low >= high:
                raise ValueError(f"signals: {name}: low is {low:g} and high {high:g}; low must be below high")
        scored = [each.name for each in SIGNALS if self.scorer == "v3" or each.name not in NETWORK_SIGNALS]
        if all(name in self.signals and self.signals[name].weight == 0 for name in scored):
            raise ValueError(
                f"signals: every weight of scorer {self.scorer} is 0; leave at least one above 0"
            )
        return self
