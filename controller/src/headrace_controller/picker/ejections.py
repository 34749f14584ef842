"""Cells that one gateway cannot use for now: it was sent there, and the request failed or went elsewhere.

Envoy's own outlier detection does not bind a named endpoint, so this stands in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace_controller.picker.candidates import Flags, Lineup

FAILURES: Final = 3
"""So many in a row eject a cell."""
OVERTAKEN: Final = 0.25
"""What it counts that another cell, asked as well, was the first to begin: the cell may only be slow."""
SPREAD_S: Final = 10.0
FIRST_S: Final = 5.0
LONGEST_S: Final = 60.0


@dataclass(slots=True)
class _Record:
    failures: float = 0.0
    until: float = -np.inf
    length_s: float = FIRST_S


class Ejections:
    """By slot, at one gateway. When an ejection ends, the next failure begins one of twice the length; a
    success forgets all."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}
        self._erred: dict[int, float] = {}

    def failed(self, slot: int, now: float, part: float = 1.0) -> bool:
        """A request failed there, which counts as `part` of a failure; whether the cell is ejected by it."""
        return self._failed(slot, now, part, FAILURES)

    def erred(self, slot: int, now: float) -> bool:
        """A cell answered a request with an error of its own (500); whether it is ejected by it.

        The request may be at fault. Then the same comes from whichever cell it is sent to: as many times as
        many in a row are asked as there are cells that have lately done so.
        """
        self._erred[slot] = now
        self._erred = {each: at for each, at in self._erred.items() if now - at <= SPREAD_S}
        return self._failed(slot, now, 1.0, FAILURES * len(self._erred))

    def _failed(self, slot: int, now: float, part: float, enough: int) -> bool:
        record = self._records.setdefault(slot, _Record())
        record.failures += part
        if record.failures < enough or now < record.until:
            return False
        record.until = now + record.length_s
        record.length_s = min(2 * record.length_s, LONGEST_S)
        return True

    def worked(self, slot: int) -> None:
        """A request was answered there."""
        self._records.pop(slot, None)

    def forget(self, slot: int) -> None:
        """The slot is nobody's."""
        self._records.pop(slot, None)
        self._erred.pop(slot, None)

    def out(self, slot: int, now: float) -> bool:
        """Whether the cell is ejected."""
        record = self._records.get(slot)
        return record is not None and now < record.until

    def usable(self, lineup: Lineup, now: float) -> Flags | None:
        """(m,): the cells that are not ejected; None = all."""
        gone = [slot for slot, record in self._records.items() if now < record.until]
        places = [at for slot in gone if (at := lineup.position.get(slot)) is not None]
        if not places:
            return None
        usable = np.ones(len(lineup), dtype=np.bool_)
        usable[places] = False
        return usable
