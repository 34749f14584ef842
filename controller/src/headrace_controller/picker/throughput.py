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
        self._since: dict[int, tuple[float, int, int]] = {}

    def read(
        self, slot: int, at: float, prompt: int, waits: bool, cached: int = 0
    ) -> tuple[float, int] | None:
        """An engine had done with so many prompt tokens since its start at `at`, of which it found `cached`
        and computed the rest, and requests waited there or not. The seconds and computed tokens of a stretch
        through which some waited at each reading, else None."""
        begun, computed = self._since.get(slot), prompt - cached
        if not waits:
            self._since.pop(slot, None)
            return None
        # What a prompt finds may be counted before the prompt: that it has computed less is no restart.
        if begun is None or prompt < begun[2]:
            self._since[slot] = (at, computed, prompt)
            return None
        seconds, tokens = at - begun[0], computed - begun[1]
        if tokens < WINDOW_TOKENS or seconds <= 0.0:
            return None
        self._since[slot] = (at, computed, prompt)
        return seconds, tokens

    def forget(self, slot: int) -> None:
        """The slot is nobody's."""
        self._since.pop(slot, None)
