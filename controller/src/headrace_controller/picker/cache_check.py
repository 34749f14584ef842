"""What engines say that they found in their prefix caches, against what was expected to be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_TOKENS: Final = 8192.0
"""Expected tokens by which a cell is judged: some prompts, for engines and answers count at other moments."""


@dataclass(slots=True)
class _Cell:
    """Totals that the engine said when the window began, and what was sent and expected since."""

    prompt: int
    cached: int
    sent: float = 0.0
    expected: float = 0.0


class CacheCheck:
    """By slot. All counts are prompt tokens; `expected` and `found` are those of all cells judged so far."""

    def __init__(self) -> None:
        self._cells: dict[int, _Cell] = {}
        self.expected = 0.0
        self.found = 0.0

    def counts(self, slot: int) -> bool:
        """Whether the cell's engine counts what it finds."""
        return slot in self._cells

    @property
    def share(self) -> float | None:
        """Of all that was expected to be cached, what engines found; None where nothing was judged yet."""
        return self.found / self.expected if self.expected else None

    def answered(self, slot: int, tokens: float, expected: float) -> None:
        """A prompt of so many tokens was computed there, `expected` of which were thought to be cached."""
        cell = self._cells.get(slot)
        if cell is not None:
            cell.sent += tokens
            cell.expected += min(expected, tokens)

    def counted(self, slot: int, prompt: int, cached: int) -> float | None:
        """The engine's totals since its start. The share, 0 to 1, of the expected tokens that it found,
        where enough were expected to tell, else None."""
        if not cached:
            # Nothing was ever found: there is no cache, or nobody counts.
            self._cells.pop(slot, None)
            return None
        cell = self._cells.get(slot)
        if cell is None or self.restarted(slot, prompt, cached):
            self._cells[slot] = _Cell(prompt, cached)
            return None
        if cell.expected < WINDOW_TOKENS or prompt == cell.prompt:
            return None
        # Others' prompts may be found there too; ours have their part of it.
        ours = min(1.0, cell.sent / (prompt - cell.prompt))
        found = min((cached - cell.cached) * ours, cell.expected)
        self.expected += cell.expected
        self.found += found
        self._cells[slot] = _Cell(prompt, cached)
        return found / cell.expected

    def restarted(self, slot: int, prompt: int, cached: int) -> bool:
        """Whether the engine's totals have fallen: it is a new process, and its cache is empty."""
        cell = self._cells.get(slot)
        return cell is not None and (prompt < cell.prompt or cached < cell.cached)

    def forget(self, slot: int) -> None:
        """The slot is nobody's."""
        self._cells.pop(slot, None)
