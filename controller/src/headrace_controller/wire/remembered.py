"""Header blocks that say the same again: peers that call often send the same few bytes each time."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from hpack.table import HeaderTable

MOST: Final = 8
"""Blocks that are remembered at once; what is more forgets all."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """What was made of blocks (or of fields) by one table. A block that changes the table stands for
    something else the next time, and so may all others then."""

    def __init__(self, table: HeaderTable) -> None:
        self._table = table
        self._found: dict[Key, Value] = {}
        self._state = self._now()

    def get(self, key: Key) -> Value | None:
        """What is remembered; None where it has to be worked out: `begin`, do it, and `keep` it."""
        return self._found.get(key)

    def begin(self) -> None:
        """A key is about to be worked out."""
        self._state = self._now()

    def keep(self, key: Key, value: Value) -> None:
        """It was, and this came out."""
        self.pass_over()
        if not self._is_as_before():
            return
        if len(self._found) >= MOST:
            self._found.clear()
        self._found[key] = value

    def pass_over(self) -> None:
        """It was, and is not to be remembered."""
        if not self._is_as_before():
            self._found.clear()

    def _now(self) -> tuple[object, int, int, bool]:
        entries = self._table.dynamic_entries
        return entries[0] if entries else None, len(entries), self._table.maxsize, self._table.resized

    def _is_as_before(self) -> bool:
        # Each entry that is added is an object of its own, and stands first.
        first, *rest = self._state
        now, *rest_now = self._now()
        return now is first and rest == rest_now
