"""Trouble that lasts is logged when it begins, when it changes and when it ends; not at every try."""

from __future__ import annotations

from collections import Counter

from headrace_shared import log


class ChangeLog:
    """Remembers the last trouble of each thing of one cell, and logs only what differs from it.

    `tries` says how often each thing was noted, `failures` how often with trouble.
    """

    def __init__(self, cell_id: str) -> None:
        self._log = log.get("engine").bind(cell=cell_id)
        self._last: dict[str, str] = {}
        self.tries: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def note(self, what: str, trouble: str) -> None:
        """`trouble` is what is wrong with `what` now, in words that do not vary; "" = nothing."""
        self.tries[what] += 1
        self.failures[what] += bool(trouble)
        if trouble == self._last.get(what, ""):
            return
        self._last[what] = trouble
        if trouble:
            self._log.warning(f"{what}: trouble", cause=trouble)
        else:
            self._log.info(f"{what}: well again")

    def last(self, what: str) -> str:
        """The trouble noted last, "" for none."""
        return self._last.get(what, "")
