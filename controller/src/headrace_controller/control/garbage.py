"""Keeps the collector of cyclic garbage off what stays.

A full collection goes through every object that there is: at ten thousand cells it holds the loop up for a
tenth of a second, and all collections together took an eighth of the time while such a fleet was served.
Nothing of a fleet is cyclic, so that what goes is freed without the collector; what stays is taken out of
its sight.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sized
from typing import Final

LOOK_S: Final = 5.0
GROWTH: Final = 1.25
LEAST_CELLS: Final = 100
YOUNG_OBJECTS: Final = 10_000
"""So many more objects than before make a young collection; a message makes a hundred, and frees them."""


def begin() -> None:
    """Take all that the program has loaded out of the collector's sight, and let it look less often."""
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
    gc.collect()
    gc.freeze()


class Spared:
    """How large the fleet was when it was taken out of the collector's sight last."""

    def __init__(self) -> None:
        self._cells = 0

    def look(self, cells: int) -> bool:
        """Take all that there is out of sight where the fleet has grown by a quarter; whether it was."""
        if cells < max(LEAST_CELLS, GROWTH * self._cells):
            return False
        self._cells = cells
        # What is young and cyclic must not be kept for ever; a full collection is what this is to avoid.
        gc.collect(1)
        gc.freeze()
        return True


async def spare(fleet: Sized) -> None:
    """Look after the fleet until cancelled."""
    spared = Spared()
    while True:
        await asyncio.sleep(LOOK_S)
        spared.look(len(fleet))
