"""Arrays that a later stage keeps beside the fleet's rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace_controller.inventory.columns import Columns


class RowMemory:
    """Named arrays with one row a fleet row, which follow the fleet.

    `fields` gives each array's name and the value of a row whose cell is new; with a `width` the
    arrays are (rows, width). A row that was reused for another cell starts blank.
    """

    def __init__(self, fields: Mapping[str, Any], width: int = 0) -> None:
        self._fields = dict(fields)
        self._width = width
        self._version = 0
        self._generation: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._arrays = {name: self._blank(name, 0) for name in self._fields}

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The array as it was at the last `follow`: exactly `size` rows, writable."""
        return self._arrays[name]

    def follow(self, fleet: Columns) -> None:
        """Take up new rows and blank those that belong to another cell now."""
        if self._version == fleet.rows_version:
            return
        self._version = fleet.rows_version
        n, known = fleet.size, len(self._generation)
        if n != known:
            self._resize(min(n, known), n)
        changed = self._generation != fleet.generation[:n]
        if changed.any():
            for name, fill in self._fields.items():
                self._arrays[name][changed] = fill
            self._generation[changed] = fleet.generation[:n][changed]

    def _resize(self, kept: int, n: int) -> None:
        generation = np.zeros(n, dtype=np.int64)
        generation[:kept] = self._generation[:kept]
        self._generation = generation
        for name, old in self._arrays.items():
            new = self._blank(name, n)
            new[:kept] = old[:kept]
            self._arrays[name] = new

    def _blank(self, name: str, rows: int) -> NDArray[Any]:
        fill = self._fields[name]
        return np.full((rows, self._width) if self._width else (rows,), fill)
