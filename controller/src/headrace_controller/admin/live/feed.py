"""Frames of what changed in the region: each is made and encoded once, whoever and however many watch.

A reader has no queue: it says which frame it saw last and gets those after it, or the whole where they
are not kept any more. Who reads slowly costs nothing and misses nothing but the way there.

A frame looks at ROWS_A_FRAME cells, so that what it costs does not grow with the fleet: in a larger one
the cells take turns, and one that the log names has its turn at once.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence, Set
from typing import Any, Final

from pydantic_core import to_json

from headrace_controller.admin.answers import dump
from headrace_controller.admin.live.region import region_of
from headrace_controller.admin.live.rows import Shares, facts_row, make_rows
from headrace_controller.admin.surface import Surface
from headrace_controller.control.fleet_view import Filter
from headrace_controller.control.view import iso_time

PERIOD_S: Final = 1.0
AT_ONCE_S: Final = 0.1
"""No two frames are closer, whatever happens; frames of many rows are kept further apart."""
ROWS_A_FRAME: Final = 2000
ROWS_AT_ONCE: Final = 1000
"""Up to so many cells AT_ONCE_S holds; with more it grows with the rows of a frame."""
KEPT: Final = 4
SLICE: Final = 64
"""So many rows are made without giving way: about a millisecond."""


class LiveFeed:
    """The frames of one controller. Frame n says what changed since frame n − 1."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._clock = surface.clock
        self._epoch = surface.clock.wall_ns() / 1e9 - surface.clock.now()
        self._making = asyncio.Lock()
        self._made_at = float("-inf")
        self._turns = Turns()
        self._log_seen = surface.loop.events.last_id
        self._number = 0
        self._frames: deque[bytes] = deque(maxlen=KEPT)
        self._rows: dict[str, bytes] = {}
        self._facts: dict[str, bytes] = {}
        self._facts_of = (-1, -1)
        self._region = b""
        self._whole: tuple[int, bytes] = (-1, b"")

    def due_in(self, urgent: bool) -> float:
        """Seconds until another frame may be made, 0 = now; sooner where something has just happened."""
        many = min(len(self._rows), ROWS_A_FRAME) / ROWS_AT_ONCE
        wait = AT_ONCE_S * max(1.0, many) if urgent else PERIOD_S
        return max(0.0, self._made_at + wait - self._clock.now())

    async def update(self, urgent: bool) -> None:
        """Make a frame where one is due; those who come meanwhile wait for the same one."""
        async with self._making:
            if self.due_in(urgent) <= 0:
                # Where nobody has looked for a while, all that is kept is old.
                fresh = self._clock.now() - self._made_at < 2 * PERIOD_S
                self._made_at = self._clock.now()
                await self._make(fresh)

    def after(self, seen: int) -> tuple[int, bytes]:
        """The number of the newest frame, and what a reader needs that saw frame `seen`; −1 = none."""
        missing = self._number - seen
        if seen >= 0 and missing <= len(self._frames):
            return self._number, b"".join(list(self._frames)[len(self._frames) - missing :])
        if self._whole[0] != self._number:
            cells = _cells(True, self._facts.values(), self._rows.values(), ())
            self._whole = (self._number, cells + self._region)
        return self._whole

    async def _make(self, fresh: bool) -> None:
        surface = self._surface
        ids = surface.views.matching(Filter())
        shares = Shares(surface)
        facts = self._new_facts(ids)
        known = set(ids)
        named = (self._named() & known) | (known - self._rows.keys())
        changed = await self._changed(self._turns.next(ids, named) if fresh else ids, shares)
        gone = self._rows.keys() - known
        for cell in gone:
            del self._rows[cell]
            self._facts.pop(cell, None)
        # Cells may have come or gone between slices.
        self._region = _block("region", self._said(Shares(surface)))
        cells = _cells(False, facts, changed, sorted(gone)) if facts or changed or gone else b""
        self._frames.append(cells + self._region)
        self._number += 1

    async def _changed(self, ids: Sequence[str], shares: Shares) -> list[bytes]:
        """The rows of these cells that are not as they were; kept."""
        changed: list[bytes] = []
        for start in range(0, len(ids), SLICE):
            part = ids[start : start + SLICE]
            for row in make_rows(self._surface, part, shares, self._clock.now(), self._epoch):
                encoded = _json(row)
                if self._rows.get(row[0]) != encoded:
                    self._rows[row[0]] = encoded
                    changed.append(encoded)
            await asyncio.sleep(0)
        return changed

    def _named(self) -> set[str]:
        """The cells to which something has happened since the last frame."""
        log = self._surface.loop.events
        entries, _ = log.after(self._log_seen, ROWS_A_FRAME)
        self._log_seen = log.last_id
        return {entry.cell for entry in entries if entry.cell}

    def _new_facts(self, ids: Iterable[str]) -> list[bytes]:
        """The facts that changed since the last frame; looked for only where a node has said Hello."""
        fleet = self._surface.loop.fleet
        version = (fleet.rows_version, fleet.addresses_version)
        if version == self._facts_of:
            return []
        self._facts_of = version
        changed = []
        for cell in ids:
            found = facts_row(fleet, cell)
            encoded = _json(found)
            if found is not None and self._facts.get(cell) != encoded:
                self._facts[cell] = encoded
                changed.append(encoded)
        return changed

    def _said(self, shares: Shares) -> bytes:
        at = iso_time(self._clock.wall_ns() / 1e9)
        return b'{"at":"%s",%s' % (at.encode(), dump(region_of(self._surface, shares))[1:])


class Turns:
    """Whose rows a frame looks at: all cells in turn, ROWS_A_FRAME at a time."""

    def __init__(self) -> None:
        self._last = ""

    def next(self, ids: Sequence[str], named: Set[str]) -> Sequence[str]:
        """Those of `ids`, which are sorted, that come after those of the frame before; and those `named`."""
        if len(ids) <= ROWS_A_FRAME:
            return ids
        begin = bisect_right(ids, self._last)
        turn = [*ids[begin : begin + ROWS_A_FRAME], *ids[: max(0, begin + ROWS_A_FRAME - len(ids))]]
        self._last = turn[-1]
        return [*turn, *(named - set(turn))]


def _cells(whole: bool, facts: Iterable[bytes], rows: Iterable[bytes], gone: Iterable[str]) -> bytes:
    return _block(
        "cells",
        b'{"whole":%s,"facts":[%s],"rows":[%s],"gone":%s}'
        % (_json(whole), b",".join(facts), b",".join(rows), _json(list(gone))),
    )


def _block(event: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.encode(), data)


def _json(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="null")
