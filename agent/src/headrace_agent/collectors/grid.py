"""Moments that all of the agent's parts share: what is due together wakes the agent once.

To wake up, with all that a processor has forgotten meanwhile, is most of what a small job costs.
"""

from __future__ import annotations

import math
from typing import Final

# Between two rounds of probes, where their answers do not come either.
BETWEEN_S: Final = 0.05


def next_due(now: float, interval_s: float, offset_s: float = 0.0, least: float = 0.5) -> float:
    """The next moment on the grid of an interval that is at least `least` of it away."""
    return math.ceil((now - offset_s) / interval_s + least) * interval_s + offset_s
