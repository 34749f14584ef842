"""Frames of what changed in the region: each is made and encoded once, whoever and however many watch.

A reader has no queue: it says which frame it saw last and gets those after it, or the whole where they
are not kept any more. Who reads slowly costs nothing and misses nothing but the way there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
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
"""No two frames are closer, whatever happens."""
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
        self._made_at = -PERIOD_S
        self._number = 0
        self._frames: deque[bytes] = deque(maxlen=KEPT)
        self._rows: dict[str, bytes] = {}
        self._facts: dict[str, bytes] = {}
        self._facts_of = (-1, -1)
        self._region = b""
        self._whole: tuple[int, bytes] = (-1, b"")

    def due_in(self, urgent: bool) -> float:
        """Seconds until another frame may be made, 0 = now; sooner where something has just happened."""
        wait = AT_ONCE_S if urgent else PERIOD_S
        return max(0.0, self._made_at + wait - self._clock.now())

    async def update(self, urgent: bool) -> None:
        """Make a frame where one is due; those who come meanwhile wait for the same one."""
        async with self._making:
            if self.due_in(urgent) <= 0:
                self._made_at = self._clock.now()
                await self._make()

    def after(self, seen: int) -> tuple[int, bytes]:
        """The number of the newest frame, and what a reader needs that saw frame `seen`; −1 = none."""
        missing = self._number - seen
        if seen >= 0 and missing <= len(self._frames):
            return self._number, b"".join(list(self._frames)[len(self._frames) - missing :])
        if self._whole[0] != self._number:
            cells = _cells(True, self._facts.values(), self._rows.values(), ())
            self._whole = (self._number, cells + self._region)
        return self._whole

    async def _make(self) -> None:
        surface = self._surface
        ids = surface.views.matching(Filter())
        shares = Shares(surface)
        facts = self._new_facts(ids)
        changed: list[bytes] = []
        for start in range(0, len(ids), SLICE):
            for row in make_rows(surface, ids[start : start + SLICE], shares, self._clock.now(), self._epoch):
                encoded = _json(row)
                if self._rows.get(row[0]) != encoded:
                    self._rows[row[0]] = encoded
                    changed.append(encoded)
            await asyncio.sleep(0)
        gone = self._rows.keys() - set(ids)
        for cell in gone:
            del self._rows[cell]
            self._facts.pop(cell, None)
        # Cells may have come or gone between slices.
        self._region = _block("region", self._said(Shares(surface)))
        cells = _cells(False, facts, changed, sorted(gone)) if facts or changed or gone else b""
        self._frames.append(cells + self._region)
        self._number += 1

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
