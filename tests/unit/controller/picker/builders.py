"""Small fleets for the picker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace_controller.picker.candidates import Candidates, Lineup
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.requests import Ask
from headrace_controller.settings import CapabilitySettings, PickerSettings

GATEWAY, MODEL = "g", "m"


def picker_of(seed: int = 1, hedge_after_s: float = 0.0, **settings: Any) -> Picker:
    """A picker that leaves nothing to the weights and breaks ties only where costs are equal."""
    chosen = {"trickle": 0.0, "tolerance": 0.0, **settings}
    chance = np.random.default_rng(seed)
    return Picker(PickerSettings(**chosen), CapabilitySettings(), chance, hedge_after_s)


def line_up(
    picker: Picker,
    cells: Sequence[str],
    now: float = 0.0,
    lengths: Sequence[float] | None = None,
    rtt_s: Sequence[float] | None = None,
    penalty: Sequence[float] | None = None,
    greatest: float | None = None,
    gateway: str = GATEWAY,
) -> Candidates:
    """Make these cells the READY ones of the pool; `CELL` is at `CELL:80`."""
    slots = [picker.join(cell, MODEL, 1.0, now) for cell in cells]
    long = np.array(lengths or [np.inf] * len(cells), dtype=np.float64)
    lineup = Lineup(
        MODEL,
        tuple(cells),
        tuple(f"{cell}:80" for cell in cells),
        np.array(slots, dtype=np.int64),
        long,
        float(greatest if greatest is not None else long.max(initial=0.0)),
    )
    made = Candidates(
        lineup,
        now,
        np.array(rtt_s or [0.0] * len(cells), dtype=np.float64),
        np.array(penalty or [1.0] * len(cells), dtype=np.float64),
    )
    picker.candidates = {**picker.candidates, (gateway, MODEL): made}
    return made


def ask(key: str = "r", **more: Any) -> Ask:
    """A request of 1,000 tokens."""
    return Ask(key, MODEL, **{"tokens": 1000, **more})
