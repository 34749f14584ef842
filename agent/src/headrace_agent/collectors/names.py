"""Names to addresses: cached, bounded, and never in the way of the agent's exit."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from headrace_shared.clock import Clock

CACHE_S = 60.0
RETRY_S = 5.0
WAIT_S = 1.0
MAX_LOOKUPS = 4
MAX_NAMES = 1024
MAX_ADDRESSES = 8

Lookup = Callable[[str], Sequence[str]]


class UnresolvedError(Exception):
    """A name that has no address now; the message says why."""


def look_up(host: str) -> tuple[str, ...]:
    """The addresses of `host`, IPv4 and IPv6, in the system's order; blocks. Raises OSError or
    ValueError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))[:MAX_ADDRESSES]


@dataclass(frozen=True, slots=True)
class _Entry:
    addresses: tuple[str, ...]
    trouble: str
    asked_at: float

    def fresh(self, now: float, max_age_s: float) -> bool:
        """Whether the name need not be asked for again."""
        return now - self.asked_at < (RETRY_S if self.trouble else max_age_s)


class Resolver:
    """Resolves in daemon threads: the loop's own executor is joined at exit, however long a
    name server keeps silent."""

    def __init__(self, clock: Clock, lookup: Lookup = look_up) -> None:
        self._clock = clock
        self._lookup = lookup
        self._entries: dict[str, _Entry] = {}
        self._out: dict[str, asyncio.Future[None]] = {}

    async def resolve(self, host: str, max_age_s: float = CACHE_S) -> tuple[str, ...]:
        """The addresses of `host`, at least one; older than `max_age_s` only while the name server
        is being asked again, or fails.

        Raises UnresolvedError.
        """
        with suppress(ValueError):  # a name, then
            return (str(ipaddress.ip_address(host)),)
        entry = self._entries.get(host)
        if entry is None or not entry.fresh(self._clock.now(), max_age_s):
            out = self._refresh(host)
            if out is not None and (entry is None or not entry.addresses):
                await asyncio.wait([out], timeout=WAIT_S)
                entry = self._entries.get(host)
        if entry is None:
            raise UnresolvedError(f"the name {host} is not resolved yet: the name server does not answer")
        if not entry.addresses:
            raise UnresolvedError(f"the name {host} cannot be resolved: {entry.trouble}")
        return entry.addresses

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
        addresses: tuple[str, ...] = ()
        trouble = "it has no address"
        try:
            addresses = tuple(self._lookup(host))
        except (OSError, ValueError) as error:
            trouble = getattr(error, "strerror", None) or type(error).__name__
        try:
            loop.call_soon_threadsafe(self._keep, host, addresses, trouble)
        except RuntimeError:
            return  # the loop has closed: nobody waits for this answer any more

    def _keep(self, host: str, addresses: tuple[str, ...], trouble: str) -> None:
        now = self._clock.now()
        before = self._entries.get(host)
        if addresses:
            entry = _Entry(addresses, "", now)
        else:
            entry = _Entry(before.addresses if before is not None else (), trouble, now)
        if len(self._entries) >= MAX_NAMES:
            self._entries.clear()
        self._entries[host] = entry
        out = self._out.pop(host)
        if not out.done():
            out.set_result(None)
