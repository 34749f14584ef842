"""Readers of the live frames and of the log, in one stream each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from aiohttp import web
from pydantic_core import to_json

from headrace_controller import __version__
from headrace_controller.admin.live.feed import PERIOD_S, LiveFeed
from headrace_controller.admin.live.rows import COLUMNS, FACTS
from headrace_controller.admin.streams import BATCH, RETRY_MS, Places, event_stream, framed, write
from headrace_controller.admin.surface import ACTOR, Surface
from headrace_controller.control.view import EventView
from headrace_controller.lifecycle import CellState
from headrace_shared.signals import SIGNALS

MAX_READERS: Final = 32
LEAST_WAIT_S: Final = 0.02


class LiveReaders:
    """Readers of the region as it changes, MAX_READERS at once."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._feed = LiveFeed(surface)
        self.places = Places(MAX_READERS)

    async def follow(self, request: web.Request, seen: int) -> web.StreamResponse:
        """Send `hello`, then frames and the entries of the log above `seen`, until either side ends."""
        async with self.places.taken(), event_stream(request) as response:
            await write(response, b"retry: %d\n\n" % RETRY_MS + _hello(self._surface, request))
            await self._follow(response, seen)
        return response

    async def _follow(self, response: web.StreamResponse, seen: int) -> None:
        log, feed, frame, urgent = self._surface.loop.events, self._feed, -1, False
        while not log.closed:
            if frame >= 0:
                # Frames made before an entry go out before it: they must not show again what it has changed.
                frame = await self._send(response, frame)
            entries, gap = log.after(seen, BATCH)
            if entries or gap:
                seen = entries[-1].id if entries else log.last_id
                # At once: what happened must not wait for the frame that shows what came of it.
                await write(response, ("event: gap\ndata: {}\n\n" * gap) + "".join(map(_log, entries)))
                urgent = True
            await feed.update(urgent)
            newest = await self._send(response, frame)
            if newest != frame:
                frame, urgent = newest, False
            await self._more(seen, max(LEAST_WAIT_S, feed.due_in(urgent)))

    async def _send(self, response: web.StreamResponse, seen: int) -> int:
        """Send what is newer than frame `seen`; the frame that the reader has then."""
        newest, text = self._feed.after(seen)
        if newest != seen and newest > 0:
            await write(response, text)
            return newest
        return seen

    async def _more(self, seen: int, seconds: float) -> None:
        """Wait for another entry of the log, for so long at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._surface.loop.events.wait(seen)
        except TimeoutError:
            return


@lru_cache(maxsize=4 * BATCH)
def _log(entry: EventView) -> str:
    """One entry as a block, made once for all readers."""
    return framed(entry, "log")


def _hello(surface: Surface, request: web.Request) -> bytes:
    actor = request[ACTOR]
    said = {
        "version": __version__,
        "region": surface.views.region,
        "who": actor.name,
        "role": actor.role,
        "period_s": PERIOD_S,
        "gateways": surface.loop.fleet.gateways,
        "states": _names(),
        "columns": COLUMNS,
        "facts": FACTS,
        "last_id": surface.loop.events.last_id,
        "signals": [
            {
                "name": each.name,
                "unit": each.unit,
                "origin": each.origin.value,
                "low": each.low,
                "high": each.high,
                "meaning": each.meaning,
            }
            for each in SIGNALS
        ],
    }
    return b"event: hello\ndata: %s\n\n" % to_json(said)


def _names() -> Sequence[str]:
    return [CellState(number).name for number in range(1, len(CellState) + 1)]
