"""Long answers, sent in slices: the event loop turns between any two, and a slow reader holds up nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from aiohttp import web
from pydantic import TypeAdapter

from headrace_controller.admin.answers import JSON, adapter, dump
from headrace_controller.control.event_log import EventLog
from headrace_controller.control.view import CellView, EventView, FleetView

WRITE_S: Final = 30.0
"""A reader that takes nothing for this long is cut off."""
HEARTBEAT_S: Final = 15.0
MAX_FOLLOWERS: Final = 64
BATCH: Final = 256
RETRY_MS: Final = 2000
_EVENT: Final[TypeAdapter[EventView]] = TypeAdapter(EventView)


async def send_text(
    request: web.Request, slices: Iterable[str | bytes], content_type: str
) -> web.StreamResponse:
    """Send what `slices` gives, a slice at a time."""
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(request)
    with _cut_off(request):
        for piece in slices:
            await write(response, piece)
            # A write that the socket takes at once does not give way by itself.
            await asyncio.sleep(0)
        await response.write_eof()
    return response


async def send_cells(
    request: web.Request, frame: FleetView, slices: Iterable[Sequence[CellView]]
) -> web.StreamResponse:
    """Send a page of cells: `frame` is the page without them."""
    return await send_text(request, _page(frame, slices), JSON)


def _page(frame: FleetView, slices: Iterable[Sequence[CellView]]) -> Iterable[bytes]:
    head = adapter(FleetView).dump_json(frame, by_alias=True, exclude={"cells"})
    yield head[:-1] + b',"cells":['
    first = True
    for cells in slices:
        if cells:
            yield (b"" if first else b",") + b",".join([dump(cell) for cell in cells])
            first = False
    yield b"]}"


class Places:
    """So many readers of a stream at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a place. Raises HTTPServiceUnavailable where all are taken."""
        if self.count >= self._most:
            raise web.HTTPServiceUnavailable(
                text=f"{self._most} readers follow already; try again later", headers={"Retry-After": "5"}
            )
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


@asynccontextmanager
async def event_stream(request: web.Request) -> AsyncIterator[web.StreamResponse]:
    """A response of server-sent events; a reader that goes away ends it without a word."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
    )
    await response.prepare(request)
    with _cut_off(request):
        yield response


class Followers:
    """Readers of the event stream, MAX_FOLLOWERS at once."""

    def __init__(self, events: EventLog, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._events = events
        self._heartbeat_s = heartbeat_s
        self.places = Places(MAX_FOLLOWERS)

    async def follow(self, request: web.Request, seen: int) -> web.StreamResponse:
        """Send every entry above `seen` as it comes, until the reader or the controller ends.

        An `event: gap` says that some before the next are not kept any more; a comment every
        `heartbeat_s` says that nothing happens.
        """
        async with self.places.taken(), event_stream(request) as response:
            await self._follow(response, seen)
        return response

    async def _follow(self, response: web.StreamResponse, seen: int) -> None:
        await write(response, f"retry: {RETRY_MS}\n\n")
        while not self._events.closed:
            entries, gap = self._events.after(seen, BATCH)
            text = ("event: gap\ndata: {}\n\n" if gap else "") + "".join(map(framed, entries))
            if entries or gap:
                seen = entries[-1].id if entries else self._events.last_id
            if text:
                await write(response, text)
            elif not await self._more(seen):
                await write(response, ": nothing new\n\n")

    async def _more(self, seen: int) -> bool:
        """Whether something came within a heartbeat."""
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await self._events.wait(seen)
        except TimeoutError:
            return False
        return True


def framed(entry: EventView, event: str = "") -> str:
    """An entry of the log as a block of a stream; the name of its event is its kind."""
    data = _EVENT.dump_json(entry, by_alias=True).decode()
    return f"id: {entry.id}\nevent: {event or entry.kind}\ndata: {data}\n\n"


async def write(response: web.StreamResponse, piece: str | bytes) -> None:
    """Send; raises TimeoutError for a reader that takes nothing."""
    async with asyncio.timeout(WRITE_S):
        await response.write(piece.encode() if isinstance(piece, str) else piece)


@contextmanager
def _cut_off(request: web.Request) -> Iterator[None]:
    """A reader that is gone, or that takes nothing, is nobody's mishap."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()
