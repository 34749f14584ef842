"""Accepts connections and serves them, with or without TLS; ends them in order."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace_controller.wire.call import Method, Peer
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.listening import listen
from headrace_controller.wire.messages import Room, Status
from headrace_controller.wire.protocol import Serving, Wire
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.net import HostPort

MAX_REMEMBERED: Final = 1024
_ACCEPT_AT_ONCE: Final = 32
# What cannot be accepted waits in the kernel's queue.
ACCEPT_AGAIN_S = 1.0
_FLUSH_S: Final = 0.5
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE))


class WireServer:
    """Serves `methods` by their gRPC paths. `tls` gives the context for each new connection."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        clock: Clock,
        tls: Callable[[], ssl.SSLContext] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._tls = tls
        self._log = log.get("wire")
        self._serving = Serving(
            methods, clock, self._limits, Room(self._limits.unfinished), self._note_error, self._note_fault
        )
        self._sockets: list[socket.socket] = []
        self._admitting: set[asyncio.Task[None]] = set()
        self._wires: set[Wire] = set()
        self._changed = asyncio.Event()
        self._said: dict[tuple[str, str], None] = {}
        self._retry: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """Connections that are served."""
        return len(self._wires)

    async def start(self, address: HostPort) -> int:
        """Listen; the port, where `address` leaves that to the system. Raises OSError."""
        self._sockets = await listen(address)
        self._listen()
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def stop(self, grace_s: float) -> None:
        """Accept nothing more, leave calls `grace_s` to end by themselves, then end them."""
        if self._retry is not None:
            self._retry.cancel()
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        self._sockets.clear()
        for task in list(self._admitting):
            task.cancel()
        await asyncio.gather(*self._admitting, return_exceptions=True)
        for wire in list(self._wires):
            wire.drain()
        await self._until(lambda: not any(wire.calls for wire in self._wires), grace_s)
        for wire in list(self._wires):
            wire.end(Status.UNAVAILABLE, "the controller is stopping")
        await self._until(lambda: not self._wires, _FLUSH_S)
        for wire in list(self._wires):
            wire.abort()
        await self._until(lambda: not self._wires, _FLUSH_S)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.add_reader(each, self._accept, each)

    def _accept(self, listener: socket.socket) -> None:
        """Accept a bounded number: those that are served have their turn, too."""
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            if self._is_full():
                accepted.close()
                continue
            accepted.setblocking(False)
            task = asyncio.create_task(self._admit(accepted), name="admit a connection")
            self._admitting.add(task)
            task.add_done_callback(self._admitting.discard)

    def _is_full(self) -> bool:
        limits = self._limits
        full = (
            len(self._wires) + len(self._admitting) >= limits.connections
            or len(self._admitting) >= limits.handshakes
        )
        if full and self._is_new("", "full"):
            self._log.warning(
                "no more connections are taken", connections=len(self._wires), handshakes=len(self._admitting)
            )
        return full

    def _rest(self, error: OSError) -> None:
        """Try again later what cannot be accepted now."""
        if self._is_new("", str(error)):
            remedy = "raise LimitNOFILE" if error.errno in _EXHAUSTED else "retrying every second"
            self._log.error("no connection can be accepted", error=str(error), remedy=remedy)
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
        self._retry = loop.call_later(ACCEPT_AGAIN_S, self._listen)

    async def _admit(self, accepted: socket.socket) -> None:
        """Agree on TLS, where it is asked for, and serve. A peer that cannot is told of once."""
        loop = asyncio.get_running_loop()
        secured: dict[str, Any] = {}
        if self._tls is not None:
            secured = {
                "ssl": self._tls(),
                "ssl_handshake_timeout": self._limits.handshake_s,
                "ssl_shutdown_timeout": _FLUSH_S,
            }
        host = _host(accepted)
        wire = Wire(self._serving, self._began, self._lost)
        try:
            await loop.connect_accepted_socket(lambda: wire, accepted, **secured)
        except (OSError, EOFError) as error:
            accepted.close()
            if self._is_new(host, type(error).__name__):
                self._log.warning("no TLS with a peer", peer=host, error=str(error) or repr(error))

    def _began(self, wire: Wire) -> None:
        self._wires.add(wire)

    def _lost(self, wire: Wire) -> None:
        self._wires.discard(wire)
        self._changed.set()

    def _note_fault(self, peer: Peer, why: str) -> None:
        if self._is_new(peer.address.rpartition(":")[0], why):
            self._log.warning("a peer was cut off", peer=peer.address, why=why)

    def _note_error(self, where: str, error: Exception) -> None:
        self._log.error(
            "a fault of the controller ended a call", where=where, error=repr(error), exc_info=error
        )

    def _is_new(self, host: str, what: str) -> bool:
        """Whether this was not said of the host before; of the oldest it is forgotten."""
        key = (host, what)
        new = key not in self._said
        self._said[key] = None
        while len(self._said) > MAX_REMEMBERED:
            del self._said[next(iter(self._said))]
        return new


def _host(accepted: socket.socket) -> str:
    try:
        return str(accepted.getpeername()[0])
    except (OSError, IndexError):
        return "gone"
