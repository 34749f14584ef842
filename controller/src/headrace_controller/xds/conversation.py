"""One Envoy's stream over gRPC: what it says is taken, what it lacks is written."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

import grpc

from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.stream import Acked, Nacked

FIRST_REQUEST_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 30.0
HOLD_POLL_S = 0.05


class StreamState(Protocol):
    """A stream without its socket; `Stream` and `DeltaStream` are the two kinds."""

    @property
    def endpoints_only(self) -> bool: ...

    def wants(self, type_url: str) -> bool: ...

    def settled(self, type_url: str, snapshot: Snapshot) -> bool: ...

    def unknown(self, snapshot: Snapshot) -> set[str]: ...

    def on_request(
        self, request: Any, published: Snapshot | None, now: float, /
    ) -> Acked | Nacked | None: ...

    def next_response(self, snapshot: Snapshot, now: float, /) -> Any | None: ...

    def holds(self, snapshot: Snapshot, /) -> bool: ...


class Party(Protocol):
    """Who answers for the gateway that an Envoy belongs to."""

    def take(self, client: Client, request: Any) -> None: ...

    def next_response(self, client: Client) -> Any | None: ...

    def holds(self, client: Client) -> bool: ...


class Client:
    """One connected Envoy: its stream's state, and the event that says that there may be news."""

    def __init__(self, stream: StreamState) -> None:
        self.stream = stream
        self.wake = asyncio.Event()

    async def read(self, first: Any, party: Party, context: Any) -> None:
        """Take what the Envoy says, beginning with `first`, until its stream ends."""
        request = first
        while request is not grpc.aio.EOF:
            party.take(self, request)
            self.wake.set()
            request = await context.read()

    async def send(self, party: Party, context: Any) -> None:
        """Write what the Envoy lacks, for ever. Raises TimeoutError when it does not read."""
        while True:
            self.wake.clear()
            while (response := party.next_response(self)) is not None:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await context.write(response)
            await self._pause(party)

    async def _pause(self, party: Party) -> None:
        try:
            async with asyncio.timeout(HOLD_POLL_S if party.holds(self) else None):
                await self.wake.wait()
        except TimeoutError:
            return


async def race(
    work: Mapping[str, Coroutine[Any, Any, Any]], closing: asyncio.Event, timeout_s: float | None = None
) -> list[asyncio.Task[Any]]:
    """Run tasks until the first is over, `closing` is set, or the time is up; all have ended then."""
    tasks = [asyncio.create_task(each, name=name) for name, each in work.items()]
    closed = asyncio.create_task(closing.wait(), name="xds closing")
    try:
        await asyncio.wait([*tasks, closed], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, closed):
            task.cancel()
        await asyncio.gather(*tasks, closed, return_exceptions=True)
    return tasks


async def first_request(context: Any, closing: asyncio.Event) -> Any:
    """The request that a stream begins with; aborts the stream when none comes in time."""
    (read,) = await race({"xds first request": context.read()}, closing, FIRST_REQUEST_TIMEOUT_S)
    if not read.cancelled():
        return read.result()
    ends = closing.is_set()
    await context.abort(
        grpc.StatusCode.UNAVAILABLE if ends else grpc.StatusCode.DEADLINE_EXCEEDED,
        "the controller is shutting down" if ends else "no request came on the stream",
    )
    raise AssertionError("abort returned")
