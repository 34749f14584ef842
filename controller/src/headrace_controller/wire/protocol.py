"""One connection on an asyncio transport. Messages are handed over within the read: no task wakes for one."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from headrace_controller.wire.call import Method, OnError, Peer
from headrace_controller.wire.connection import Connection
from headrace_controller.wire.frames import ErrorCode
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.messages import Room, Status
from headrace_shared.clock import Clock

TICK_S: Final = 1.0
# How long what was said last may take to be read.
_CLOSE_S: Final = 2.0
_HIGH_WATER: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Serving:
    """What all connections of a server share; `room` bounds what they hold together."""

    methods: Mapping[str, Method]
    clock: Clock
    limits: Limits
    room: Room
    on_error: OnError
    on_fault: Callable[[Peer, str], None]
    """Hears of a peer that was cut off, and why."""


class Wire(asyncio.Protocol):
    """Reads, writes and ends one connection. `on_made` hears that it began, `on_lost` that it is gone."""

    def __init__(
        self, serving: Serving, on_made: Callable[[Wire], None], on_lost: Callable[[Wire], None]
    ) -> None:
        self._serving = serving
        self._on_made = on_made
        self._on_lost = on_lost
        self._transport: asyncio.Transport
        self._connection: Connection | None = None
        self._peer = Peer("nobody yet")
        self._turning = False
        self._more = False
        self._timer: asyncio.TimerHandle | None = None
        self._closing_since: float | None = None

    @property
    def calls(self) -> int:
        """Calls that have not ended."""
        return self._connection.calls if self._connection is not None else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops' transports are no subclasses.
        self._transport = transport = cast(asyncio.Transport, transport)
        self._on_made(self)
        if _speaks_another_protocol(transport):
            transport.abort()
            return
        serving, now = self._serving, self._serving.clock.now()
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._peer = peer_of(transport)
        self._connection = Connection(
            serving.methods, serving.limits, serving.room, self._peer, self._flush, serving.on_error, now
        )
        self._connection.begin()
        self._wait()

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None or connection.finished:
            return
        now = self._serving.clock.now()
        if connection.receive(data, now) and not self._more:
            self._turn(connection, now)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.set_writable(False)

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.set_writable(True)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()
        self._on_lost(self)

    def drain(self) -> None:
        """Take no new calls."""
        if self._connection is not None:
            self._connection.drain()

    def end(self, status: Status, details: str) -> None:
        """End all calls, and the connection once that is written."""
        if self._connection is not None:
            self._connection.end_calls(status, details)
        self._flush()

    def abort(self) -> None:
        """Close without a word."""
        self._transport.abort()

    def _turn(self, connection: Connection, now: float) -> None:
        self._turning = True
        try:
            more = connection.turn(now)
        except Exception as error:  # noqa: BLE001 - one connection's trouble must not end the others
            more = False
            self._serving.on_error(f"connection of {self._peer.address}", error)
            connection.fail(ErrorCode.INTERNAL_ERROR, "a fault of the server")
        finally:
            self._turning = False
        self._flush()
        if more:
            self._more = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)
        elif self._more:
            self._more = False
            self._transport.resume_reading()

    def _go_on(self) -> None:
        connection = self._connection
        if connection is not None and not connection.finished:
            self._turn(connection, self._serving.clock.now())

    def _flush(self) -> None:
        """Write what there is; within a turn, all of it at the end."""
        connection, transport = self._connection, self._transport
        if self._turning or connection is None:
            return
        data = connection.outgoing.take()
        if data and not transport.is_closing():
            transport.write(data)
            if transport.get_write_buffer_size() > self._serving.limits.unread:
                self._cut_off(connection, "reads nothing of what it asks for")
                return
        if connection.finished and self._closing_since is None:
            self._closing_since = self._serving.clock.now()
            if connection.fault:
                self._serving.on_fault(self._peer, connection.fault)
            transport.close()

    def _cut_off(self, connection: Connection, why: str) -> None:
        self._serving.on_fault(self._peer, why)
        connection.close()
        self._transport.abort()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        connection, now = self._connection, self._serving.clock.now()
        if connection is None:
            return
        if self._closing_since is not None:
            if now - self._closing_since >= _CLOSE_S:
                self._transport.abort()
        else:
            connection.tick(now)
            self._flush()
        self._wait()


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Who is at the other end of a transport."""
    found: Any = transport.get_extra_info("peername")
    if not isinstance(found, tuple):
        return Peer("unix", local=True)
    host, port = str(found[0]), found[1]
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Peer(shown, is_local(host), names_of(transport.get_extra_info("peercert")))


def is_local(host: str) -> bool:
    """Whether an address is one of this machine alone."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def names_of(certificate: Any) -> tuple[str, ...]:
    """The common names and alternative names of a certificate, as `ssl` gives it; none of none."""
    if not certificate:
        return ()
    common = [
        value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"
    ]
    # A directory's name is none of a host or gateway, and comes as a tuple.
    others = [value for _, value in certificate.get("subjectAltName", ()) if isinstance(value, str)]
    return (*common, *others)


def _speaks_another_protocol(transport: asyncio.BaseTransport) -> bool:
    """Whether a peer has agreed on TLS and not on HTTP/2."""
    secured: Any = transport.get_extra_info("ssl_object")
    return secured is not None and secured.selected_alpn_protocol() != "h2"
