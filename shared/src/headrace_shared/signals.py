"""The signal catalogue: the one place that defines the ten signals of a cell.

A signal is one measured figure. Its normalised value lies in [0, 1], 1 = most pressure, and is
`(value - low) / (high - low)` clipped. A figure that was not measured is absent on the wire and
NaN in arrays, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Origin(Enum):
    """Who measures a signal."""

    ENGINE = "engine"
    GPU = "gpu"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Signal:
    """One catalogue entry.

    `low` and `high` bound the default range in `unit`; `weight` is the default share in the
    ten-signal score (all weights sum to 1). A `saturating` signal at the top of its range means
    that the cell fails its purpose, however idle the rest of it looks, and is scored so.
    """

    name: str
    unit: str
    origin: Origin
    low: float
    high: float
    weight: float
    meaning: str
    saturating: bool = False


SIGNALS: Final[tuple[Signal, ...]] = (
    Signal("queue_depth", "requests", Origin.ENGINE, 0.0, 32.0, 0.20, "requests waiting in the engine"),
    Signal("ttft_p95_s", "s", Origin.ENGINE, 0.0, 5.0, 0.15, "P95 time to first token, sliding window"),
    Signal(
        "error_rate",
        "fraction",
        Origin.ENGINE,
        0.02,
        0.22,
        0.15,
        "failed share of requests; scored as the excess over the pool",
        saturating=True,
    ),
    Signal("kv_fill", "fraction", Origin.ENGINE, 0.0, 1.0, 0.12, "KV cache in use"),
    # "Some kernel ran" is no load figure, and engines pre-allocate VRAM: both weigh little.
    Signal("gpu_util", "fraction", Origin.GPU, 0.0, 1.0, 0.05, "share of time a kernel ran"),
    Signal("vram_util", "fraction", Origin.GPU, 0.0, 1.0, 0.03, "VRAM in use of used + free"),
    Signal(
        "compute_active", "fraction", Origin.GPU, 0.0, 1.0, 0.12, "tensor pipe, else SM, else engine active"
    ),
    Signal("memory_bw_util", "fraction", Origin.GPU, 0.0, 1.0, 0.08, "DRAM active, else memory copy share"),
    Signal("rtt_ms", "ms", Origin.NETWORK, 0.0, 150.0, 0.06, "smoothed round trip to the gateway"),
    Signal("jitter_ms", "ms", Origin.NETWORK, 0.0, 30.0, 0.04, "mean difference of consecutive round trips"),
)

NAMES: Final[tuple[str, ...]] = tuple(s.name for s in SIGNALS)
INDEX: Final[dict[str, int]] = {name: i for i, name in enumerate(NAMES)}
CELL_SIGNALS: Final[tuple[str, ...]] = tuple(s.name for s in SIGNALS if s.origin is not Origin.NETWORK)
NETWORK_SIGNALS: Final[tuple[str, ...]] = tuple(s.name for s in SIGNALS if s.origin is Origin.NETWORK)
GPU_SIGNALS: Final[tuple[str, ...]] = tuple(s.name for s in SIGNALS if s.origin is Origin.GPU)
