"""Gateway names to addresses: cached, bounded, and never in the way of the agent's exit."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from headrace_shared.clock import Clock

CACHE_S = 60.0
RETRY_S = 5.0
WAIT_S = 1.0
MAX_LOOKUPS = 4
MAX_NAMES = 1024

Lookup = Callable[[str], str]


class UnresolvedError(Exception):
    """A name that has no address now; the message says why."""


def look_up(host: str) -> str:
    """The first address of `host`, in the system's order; blocks. Raises OSError or ValueError."""
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)[0][4][0])


@dataclass(frozen=True, slots=True)
class _Entry:
    address: str | None
    trouble: str
    until: float


class Resolver:
    """Resolves in daemon threads: the loop's own executor is joined at exit, however long a
    name server keeps silent."""

    def __init__(self, clock: Clock, lookup: Lookup = look_up) -> None:
        self._clock = clock
        self._lookup = lookup
        self._entries: dict[str, _Entry] = {}
        self._out: dict[str, asyncio.Future[None]] = {}

    async def resolve(self, host: str) -> str:
        """An address of `host`, at most 60 s old; an older one where the name server fails.

        Raises UnresolvedError.
        """
        with suppress(ValueError):  # a name, then
            return str(ipaddress.ip_address(host))
        entry = self._entries.get(host)
        if entry is None or entry.until <= self._clock.now():
            out = self._refresh(host)
            if out is not None and (entry is None or entry.address is None):
                await asyncio.wait([out], timeout=WAIT_S)
                entry = self._entries.get(host)
        if entry is None:
            raise UnresolvedError(f"the name {host} is not resolved yet: the name server does not answer")
        if entry.address is None:
            raise UnresolvedError(f"the name {host} cannot be resolved: {entry.trouble}")
        return entry.address

    def _refresh(self, host: str) -> asyncio.Future[None] | None:
        """The look-up of `host` that is out, started if need be; None while too many others are."""
        if host not in self._out:
            if len(self._out) >= MAX_LOOKUPS:
                return None
            loop = asyncio.get_running_loop()
            self._out[host] = loop.create_future()
            run = partial(self._run, host, loop)
            threading.Thread(target=run, name=f"resolve {host}"[:64], daemon=True).start()
        return self._out[host]

    def _run(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        address, trouble = None, ""
        try:
            address = self._lookup(host)
        except (OSError, ValueError) as error:
            trouble = getattr(error, "strerror", None) or type(error).__name__
        try:
            loop.call_soon_threadsafe(self._keep, host, address, trouble)
        except RuntimeError:
            return  # the loop has closed: nobody waits for this answer any more

    def _keep(self, host: str, address: str | None, trouble: str) -> None:
        now = self._clock.now()
        before = self._entries.get(host)
        if address is not None:
            entry = _Entry(address, "", now + CACHE_S)
        else:
            entry = _Entry(before.address if before is not None else None, trouble, now + RETRY_S)
        if len(self._entries) >= MAX_NAMES:
            self._entries.clear()
        self._entries[host] = entry
        out = self._out.pop(host)
        if not out.done():
            out.set_result(None)
