"""Connecting to an engine, and what it proves where that fails."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar
from urllib.parse import urlsplit

from headrace_agent.collectors.app.http.errors import CallError, ClosedError
from headrace_agent.collectors.app.http.trust import Trust
from headrace_agent.collectors.names import Resolver, UnresolvedError
from headrace_shared.clock import Clock

NAMES_LAST_S: Final = 30.0
# An address of a kind that this host does not have (no IPv6) proves nothing either way.
_ABSENT: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

P = TypeVar("P", bound=asyncio.BaseProtocol)
T = TypeVar("T")


class Dialer:
    """Opens connections to the host and port of an http or https URL.

    A name is looked up again after a while; until that has an answer, its last addresses serve on: a
    name server that keeps silent must not make an engine look hung.
    """

    def __init__(self, url: str, clock: Clock, trust: Trust | None = None) -> None:
        self.host, self.port = endpoint(url)
        self.tls = urlsplit(url).scheme == "https"
        self._trust = trust if trust is not None else Trust()
        self._names = Resolver(clock)

    async def dial(self, factory: Callable[[], P]) -> P:
        """Connect, encrypted where the URL says so.

        Raises OSError: ConnectionRefusedError only where that proves that nothing listens.
        """
        context = self._trust.context() if self.tls else None
        loop = asyncio.get_running_loop()

        async def connect(address: str) -> P:
            name = (self._trust.server_name or self.host) if context is not None else None
            _, made = await loop.create_connection(
                factory, address, self.port, ssl=context, server_hostname=name
            )
            return made

        return await self._first(connect)

    def hint(self, error: CallError) -> str:
        """What to do about a call that failed after the connection was made, where that is known."""
        if self.tls and isinstance(error, ClosedError) and not self._trust.shows_itself:
            return "; if the engine asks for a certificate, set the cell's tls.cert and tls.key"
        return ""

    async def dial_socket(self) -> socket.socket:
        """A connected socket that does not block and that the event loop does not watch.

        Raises OSError as `dial` does.
        """
        return await self._first(self._connect_socket)

    async def _connect_socket(self, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, (address, self.port))
        except BaseException:
            sock.close()
            raise
        return sock

    async def _first(self, connect: Callable[[str], Awaitable[T]]) -> T:
        """The first address that can be connected to."""
        errors: list[OSError] = []
        for address in await self._look_up():
            try:
                return await connect(address)
            except OSError as error:
                errors.append(error)
        raise explain(errors)

    async def _look_up(self) -> Sequence[str]:
        try:
            return await self._names.resolve(self.host, NAMES_LAST_S)
        except UnresolvedError as error:
            raise OSError(str(error)) from error


def endpoint(url: str) -> tuple[str, int]:
    """Host and port of an http or https URL."""
    parts = urlsplit(url)
    return str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)


def is_address(host: str) -> bool:
    """Whether a host is written as an address and not as a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def explain(errors: Sequence[OSError]) -> OSError:
    """What it means that none of an engine's addresses could be connected to.

    It is refused where each address either refused or is of a kind that this host does not have;
    otherwise the first other reason counts.
    """
    others = [error for error in errors if not isinstance(error, ConnectionRefusedError)]
    telling = [error for error in others if error.errno not in _ABSENT]
    if telling or len(others) == len(errors):
        return (telling or others or [OSError("the name has no address")])[0]
    return next(error for error in errors if isinstance(error, ConnectionRefusedError))
