"""GPUs whose calls hung or crashed: left alone for a while, so that the others can be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Ban:
    why: str
    until: float
    length_s: float


class Shunned:
    """Each GPU by index. The first ban lasts `first_s`, each further one twice as long as the last."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._bans: dict[int, _Ban] = {}

    def add(self, index: int, why: str, now: float) -> None:
        """The GPU at `index` is to blame for what `why` says."""
        known = self._bans.get(index)
        length_s = self._first_s if known is None else min(2 * known.length_s, self._longest_s)
        self._bans[index] = _Ban(why, now + length_s, length_s)

    def at(self, now: float) -> list[int]:
        """The GPUs to leave alone now."""
        return [index for index, ban in self._bans.items() if now < ban.until]

    def words(self, now: float) -> list[str]:
        """Why, for each of them."""
        return [
            f"{self._bans[index].why}; GPU {index} is left alone for {self._bans[index].length_s:g} s"
            for index in self.at(now)
        ]

    def forgive(self, now: float) -> None:
        """Forget the GPUs that have answered for as long as they were left alone."""
        self._bans = {index: ban for index, ban in self._bans.items() if now < ban.until + ban.length_s}
