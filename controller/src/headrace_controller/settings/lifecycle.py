"""`cadence` and `lifecycle`: how often is told, and what follows when nothing is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace_shared.config import Settings


class CadenceSettings(Settings):
    """What agents are asked to keep, and the controller's own tick; seconds."""

    telemetry_s: float = Field(0.5, ge=0.1, le=10)
    liveness_s: float = Field(0.1, ge=0.02, le=10)
    tick_s: float = Field(0.05, ge=0.01, le=1)


class LifecycleSettings(Settings):
    """The life of a cell; seconds unless said otherwise.

    `ttl_s`: silence after which the agent counts as silent. `on_silence`: confirm asks the engine
    itself before failing its cell; fail does not ask. `ramp_s`: a freshly loaded cell's weight
    rises over it. `hold_down_s` doubles up to `hold_down_max_s` for a flapping cell and is
    forgotten after `flap_memory_s` of calm. `retention_s`: how long a FAILED or TERMINATED cell
    is remembered. `self_preservation_share`: when more than this share of the READY cells falls
    silent within `self_preservation_window_s` with no sign that their engines died, weights hold.
    """

    ttl_s: float = Field(0.5, ge=0.1, le=60)
    on_silence: Literal["confirm", "fail"] = "confirm"
    confirm_timeout_s: float = Field(0.1, ge=0.01, le=10)
    confirm_interval_s: float = Field(0.5, ge=0.1, le=60)
    ramp_s: float = Field(10.0, ge=0, le=600)
    hold_down_s: float = Field(1.0, ge=0, le=600)
    hold_down_max_s: float = Field(60.0, ge=0, le=3600)
    flap_memory_s: float = Field(120.0, ge=1, le=86400)
    drain_deadline_s: float = Field(300.0, ge=0, le=86400)
    retention_s: float = Field(600.0, ge=1, le=604800)
    barrier_s: float = Field(3.0, ge=0, le=300)
    self_preservation_share: float = Field(0.5, gt=0, le=1)
    self_preservation_window_s: float = Field(2.0, gt=0, le=60)
    history: int = Field(64, ge=4, le=4096)
