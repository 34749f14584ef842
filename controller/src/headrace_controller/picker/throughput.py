"""How fast engines compute prompts while they have a queue, by their own counts.

Of a pool that does not stream no first token is seen; its cells' speed is learned from this.
"""

from __future__ import annotations

from typing import Final

WINDOW_TOKENS: Final = 4096
"""Computed tokens that tell a speed: prompts are counted when they are done, not as they are computed."""


class Throughput:
    """By slot; times in s, on one clock."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[float, int]] = {}

    def read(self, slot: int, at: float, computed: int, waits: bool) -> tuple[float, int] | None:
        """An engine had computed so many prompt tokens since its start at `at`, and requests waited there
        or not. The seconds and tokens of a stretch through which some waited at each reading, else None."""
        begun = self._since.get(slot)
        if not waits:
            self._since.pop(slot, None)
            return None
        if begun is None or computed < begun[1]:
            self._since[slot] = (at, computed)
            return None
        seconds, tokens = at - begun[0], computed - begun[1]
        if tokens < WINDOW_TOKENS or seconds <= 0.0:
            return None
        self._since[slot] = (at, computed)
        return seconds, tokens

    def forget(self, slot: int) -> None:
        """The slot is nobody's."""
        self._since.pop(slot, None)
