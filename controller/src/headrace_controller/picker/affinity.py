"""Where sessions and the beginnings of prompts were last computed, and so may still be in a cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np

from headrace_controller.picker.candidates import Floats, Lineup

MAX_SESSIONS: Final = 65_536
MAX_BLOCKS: Final = 262_144
MAX_HOLDERS: Final = 16
"""Cells that are remembered for one block."""
SESSION_S: Final = 1800.0
BLOCK_S: Final = 600.0
_TRUST_STEP: Final = 0.05
_CHECK_STEP: Final = 0.3
"""The same by an engine's own count, which is one of many prompts."""
_LEAST_TRUST: Final = 0.05


def fullest(cached: Floats, cost: Floats) -> tuple[int, ...]:
    """Where the cell stands that holds the most of a prompt, the cheapest of several, as a tuple; () where
    all hold as much. `cached` (m,) in tokens, `cost` (m,) in s."""
    most = cached.max()
    if cached.min() >= most:
        return ()
    return (int(np.where(cached >= most, cost, np.inf).argmin()),)


class Sessions:
    """The cell that answered a session last, and how long the prompt was."""

    def __init__(self) -> None:
        self._cells: OrderedDict[tuple[str, str], tuple[str, float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, model: str, session: str, now: float) -> str:
        """The cell's id; "" where there is none, or the session has been quiet too long."""
        found = self._cells.get((model, session))
        return found[0] if found is not None and now - found[1] <= SESSION_S else ""

    def held(self, model: str, session: str, tokens: float) -> tuple[float, float]:
        """How much of a prompt of so many tokens that cell may hold, and since when: the one before, where
        the session grows; nothing where this one is shorter, for then it does not begin with that one."""
        found = self._cells.get((model, session))
        return (found[2], found[1]) if found is not None and found[2] < tokens else (0.0, -np.inf)

    def note(self, model: str, session: str, cell_id: str, now: float, tokens: float = 0.0) -> None:
        """The cell answered a request of the session, whose prompt had so many tokens."""
        key = (model, session)
        self._cells[key] = (cell_id, now, tokens)
        self._cells.move_to_end(key)
        while len(self._cells) > MAX_SESSIONS:
            self._cells.popitem(last=False)


class Prefixes:
    """Which cells computed which blocks, by slot and when.

    What an engine still holds is its own affair: `trust` (by slot) is how much of the saving came true,
    learned from the engine's own count where there is one, else from times to first token.
    """

    def __init__(self) -> None:
        self._holders: OrderedDict[int, dict[int, float]] = OrderedDict()
        self._trust: dict[int, float] = {}
        self._since: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def cached(self, lineup: Lineup, blocks: Sequence[int], block_tokens: float, now: float) -> Floats | None:
        """(m,): the tokens of the prompt that each cell is expected to hold; None where none holds any."""
        depth: dict[int, int] = {}
        holding: set[int] | None = None
        for number, block in enumerate(blocks, 1):
            here = {slot for slot, at in self._holders.get(block, {}).items() if self.is_held(slot, at, now)}
            holding = here if holding is None else holding & here
            if not holding:
                break
            for slot in holding:
                depth[slot] = number
        if not depth:
            return None
        tokens = np.zeros(len(lineup))
        for slot, blocks_held in depth.items():
            at = lineup.position.get(slot)
            if at is not None:
                tokens[at] = blocks_held * block_tokens * self._trust.get(slot, 1.0)
        return tokens

    def note(self, slot: int, blocks: Sequence[int], now: float) -> None:
        """The cell computes these blocks."""
        for block in blocks:
            holders = self._holders.setdefault(block, {})
            self._holders.move_to_end(block)
            holders.pop(slot, None)
            holders[slot] = now
            while len(holders) > MAX_HOLDERS:
                del holders[next(iter(holders))]
        while len(self._holders) > MAX_BLOCKS:
            self._holders.popitem(last=False)

    def drop(self, slot: int, blocks: Sequence[int], at: float) -> None:
        """The cell did not compute these blocks, as was noted at `at`."""
        for block in blocks:
            holders = self._holders.get(block)
            if holders is not None and holders.get(slot) == at:
                del holders[slot]
                if not holders:
                    del self._holders[block]

    def learn(self, slot: int, came_true: float) -> None:
        """So much, 0 to 1, of a saving that was expected of the cell was had."""
        before = self._trust.get(slot, 1.0)
        share = min(max(came_true, 0.0), 1.0)
        self._trust[slot] = max(_LEAST_TRUST, before + _TRUST_STEP * (share - before))

    def check(self, slot: int, found: float) -> None:
        """The engine has found so much, 0 to 1, of what was expected of it."""
        before = self._trust.get(slot, 1.0)
        self._trust[slot] = max(_LEAST_TRUST, before + _CHECK_STEP * (found - before))

    def trust(self, slot: int) -> float:
        """How much of what is expected to be cached is believed."""
        return self._trust.get(slot, 1.0)

    def forget(self, slot: int, now: float) -> None:
        """The slot is another cell's from now on."""
        self._trust.pop(slot, None)
        self.empty(slot, now)

    def empty(self, slot: int, now: float) -> None:
        """The cell's engine has started anew and holds nothing."""
        # Going through all blocks would keep requests waiting.
        self._since[slot] = now

    def is_held(self, slot: int, at: float, now: float) -> bool:
        """Whether the cell may still hold what it had computed at `at`."""
        return now - at <= BLOCK_S and at > self._since.get(slot, -np.inf)
