"""Moments that all of the agent's parts share: what is due together wakes the agent once.

To wake up, with all that a processor has forgotten meanwhile, is most of what a small job costs.
"""

from __future__ import annotations

import math
from typing import Final

# The beats and the rounds of probes are at its multiples.
STEP_S: Final = 0.1
# Just after the answers of a round of probes were heard: what is done then costs no waking up.
AWAKE_S: Final = 0.016
# When figures are asked for that a beat every 0.5 s is to hold: they are there two steps later.
BEFORE_BEAT_S: Final = 3 * STEP_S + AWAKE_S


def next_due(now: float, interval_s: float, offset_s: float = 0.0, least: float = 0.5) -> float:
    """The next moment on the grid of an interval that is at least `least` of it away."""
    return math.ceil((now - offset_s) / interval_s + least) * interval_s + offset_s
