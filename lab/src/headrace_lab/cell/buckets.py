"""Bucket bounds of vLLM's histograms: with V0 (0.6.6) and now."""

from __future__ import annotations

TTFT_V0 = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TTFT = (*TTFT_V0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)

GAP_V0 = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
GAP = (*GAP_V0, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)

LATENCY_V0 = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
LATENCY = (*LATENCY_V0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)

HTTP = (0.1, 0.5, 1.0)


def sizes_up_to(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 … up to `limit`."""
    bounds: list[float] = []
    power = 1
    while power <= limit:
        bounds += [float(m * power) for m in (1, 2, 5) if m * power <= limit]
        power *= 10
    return tuple(bounds)
