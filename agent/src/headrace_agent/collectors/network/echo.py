"""One echo over a path: by ICMP, or by the time that a TCP connect takes."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from icmplib import (
    AsyncSocket,
    ICMPError,
    ICMPRequest,
    ICMPSocketError,
    ICMPv4Socket,
    ICMPv6Socket,
    SocketPermissionError,
    TimeoutExceeded,
)

from headrace_agent.collectors.network.estimate import credible
from headrace_agent.collectors.readings import PathMethod
from headrace_shared.clock import Clock

NOT_ALLOWED = (
    "ICMP is not allowed here; give the agent CAP_NET_RAW, or add its group to net.ipv4.ping_group_range"
)
# The wall clock that icmplib's own time-out goes by may have jumped when it ends this early.
EARLY = 0.9
LOCAL_TROUBLE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))


class Outcome(Enum):
    """What became of an echo. DROPPED: answered, but its time is not to be believed. UNABLE: not
    sent for a reason on this host, so it says nothing about the path."""

    REPLY = "reply"
    LOST = "lost"
    DROPPED = "dropped"
    UNABLE = "unable"


@dataclass(frozen=True, slots=True)
class Echo:
    """One echo; `rtt_ms` is there for a REPLY only."""

    outcome: Outcome
    method: PathMethod
    rtt_ms: float | None = None
    detail: str = ""


class Prober(Protocol):
    """Sends echoes one way."""

    method: PathMethod

    async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
        """Send one echo to an IP address; never takes much longer than `timeout_s`."""
        ...


class IcmpProber:
    """Echo requests over raw sockets, or over the kernel's ping sockets where raw is not allowed."""

    method = PathMethod.ICMP

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # A raw socket hears every reply to this host: numbers of our own tell agents in containers,
        # whose process ids are alike, apart.
        self._id = secrets.randbelow(0x10000)
        self._sequence = secrets.randbelow(0x10000)

    async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
        """`port` is not used."""
        try:
            opened = _open(address)
        except SocketPermissionError:
            return self._end(Outcome.UNABLE, NOT_ALLOWED)
        except ICMPSocketError as error:
            return self._end(Outcome.UNABLE, f"no ICMP socket: {error}")
        self._sequence = (self._sequence + 1) & 0xFFFF
        request = ICMPRequest(address, self._id, self._sequence)
        with AsyncSocket(opened) as sock:
            return await self._exchange(sock, request, timeout_s)

    async def _exchange(self, sock: AsyncSocket, request: ICMPRequest, timeout_s: float) -> Echo:
        began = self._clock.now()
        try:
            async with asyncio.timeout(timeout_s * 1.1):
                sock.send(request)
                reply = await sock.receive(request, timeout_s)
        except (TimeoutExceeded, TimeoutError):
            if self._clock.now() - began < timeout_s * EARLY:
                return self._end(Outcome.DROPPED, "the wall clock jumped")
            return self._end(Outcome.LOST, f"no reply within {timeout_s:g} s")
        except ICMPSocketError as error:
            return self._end(Outcome.LOST, f"not sent: {error}")
        elapsed = self._clock.now() - began
        try:
            reply.raise_for_status()
        except ICMPError as error:
            return self._end(Outcome.LOST, str(error))
        rtt = reply.time - request.time
        if not credible(rtt, elapsed):
            return self._end(Outcome.DROPPED, "the wall clock jumped")
        return Echo(Outcome.REPLY, self.method, rtt * 1000)

    def _end(self, outcome: Outcome, detail: str) -> Echo:
        return Echo(outcome, self.method, detail=detail)


def _open(address: str) -> ICMPv4Socket | ICMPv6Socket:
    """A socket for `address`, raw if allowed. Raises icmplib's errors."""
    kind = ICMPv6Socket if ":" in address else ICMPv4Socket
    try:
        return kind(privileged=True)
    except SocketPermissionError:
        return kind(privileged=False)


class TcpProber:
    """The time of a TCP handshake: one round trip, plus what the peer's kernel needs."""

    method = PathMethod.TCP_CONNECT

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
        """Connect to `port` and close again. A refusal is a loss: nothing serves there."""
        if not 0 < port < 65536:
            return self._end(Outcome.UNABLE, "the gateway has no TCP port to measure by")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setblocking(False)
                began = self._clock.now()
                async with asyncio.timeout(timeout_s):
                    await asyncio.get_running_loop().sock_connect(sock, (address, port))
                return Echo(Outcome.REPLY, self.method, (self._clock.now() - began) * 1000)
        except TimeoutError:
            return self._end(Outcome.LOST, f"no connection within {timeout_s:g} s")
        except OSError as error:
            outcome = Outcome.UNABLE if error.errno in LOCAL_TROUBLE else Outcome.LOST
            return self._end(outcome, f"port {port}: {error.strerror or type(error).__name__}")

    def _end(self, outcome: Outcome, detail: str) -> Echo:
        return Echo(outcome, self.method, detail=detail)
