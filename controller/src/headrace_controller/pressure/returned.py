"""Whose engine has come back: what was held against the one before is not its fault."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory import Fleet, RowMemory
from headrace_controller.lifecycle import CellState

Flags = NDArray[np.bool_]


class Returned:
    """Follows the cells' states. A cell that was READY and then FAILED or LOADING is `gone` until it is
    READY again. One that is only being registered again, as after a restart of the controller, is not."""

    def __init__(self) -> None:
        self._memory = RowMemory({"ready": False, "gone": False})
        self._states = np.zeros(0, dtype=np.int64)
        self._rows_version = 0

    def gone(self, fleet: Fleet, row: int) -> bool:
        """Whether the cell of a row was gone at the last `look`."""
        self._memory.follow(fleet)
        return bool(self._memory["gone"][row])

    def look(self, fleet: Fleet) -> Flags | None:
        """(n,): who is READY again since the last look; None = nobody. It tells of each return once."""
        self._memory.follow(fleet)
        states = fleet.state[: fleet.size]
        if self._rows_version == fleet.rows_version and np.array_equal(states, self._states):
            return None
        self._rows_version, self._states = fleet.rows_version, states.astype(np.int64)
        ready, gone = self._memory["ready"], self._memory["gone"]
        is_ready = states == CellState.READY
        gone |= ready & ((states == CellState.FAILED) | (states == CellState.LOADING))
        back: Flags = gone & is_ready
        gone &= ~is_ready
        ready[:] = is_ready | (ready & ~gone)
        return back if back.any() else None
