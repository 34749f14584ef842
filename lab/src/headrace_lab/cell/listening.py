"""Sockets bound early and opened late, and servers whose idle connections end as vLLM's do."""

from __future__ import annotations

import asyncio
import errno
import socket

from aiohttp import web

from headrace_shared.net import HostPort, PortInUseError


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: connecting to it is refused, its port is ours.

    Raises PortInUseError, or OSError for an address that is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio lets a token go at once (TCP_NODELAY) only where a socket says that it is of TCP.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # The port of a program that was killed a moment ago can be taken at once.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError("--port", HostPort(host, port)) from error
        raise
    sock.setblocking(False)
    return sock


def address_of(sock: socket.socket) -> HostPort:
    """Where a bound socket can be reached."""
    host, port = sock.getsockname()[:2]
    return HostPort(host, port)


class Connection(web.RequestHandler):
    """A connection on which nothing was asked stays open; the idle time counts from an answer."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.keep_alive(True)  # takes away the timer that the library has just set


class Site(web.BaseSite):
    """Serves a runner's application on a bound socket. `start` raises PortInUseError."""

    __slots__ = ("_keep_alive_s", "_sock")

    def __init__(self, runner: web.AppRunner, sock: socket.socket, keep_alive_s: float) -> None:
        super().__init__(runner)
        self._sock = sock
        self._keep_alive_s = keep_alive_s

    @property
    def name(self) -> str:
        return f"http://{address_of(self._sock)}"

    async def start(self) -> None:
        await super().start()
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._connect, sock=self._sock, backlog=1024)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError("--port", address_of(self._sock)) from error
            raise

    def _connect(self) -> Connection:
        manager = self._runner.server
        assert manager is not None, "set up the runner first"
        return Connection(
            manager,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self._keep_alive_s,
        )
