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
from headrace_agent.collectors.network.rights import NOT_ALLOWED
from headrace_agent.collectors.readings import PathMethod
from headrace_shared.clock import Clock

# The wall clock that icmplib's own time-out goes by may have jumped when it ends this early.
EARLY = 0.9
# The kernel sends an unanswered SYN again after this long: what is answered later may be the answer
# to the second, and its time no round trip.
SYN_AGAIN_S = 1.0
# icmplib draws a payload at random for each echo otherwise; the numbers tell them apart.
_PAYLOAD = b"headrace" * 7
LOCAL_TROUBLE = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
)
# A local firewall answers a send with these; so does a broadcast address.
HELD_BACK = frozenset((errno.EPERM, errno.EACCES))


class Outcome(Enum):
    """What became of an echo. DROPPED: answered, but its time is not to be believed. UNABLE: not
    sent for a reason on this host, so it says nothing about the path."""

    REPLY = "reply"
    LOST = "lost"
    DROPPED = "dropped"
    UNABLE = "unable"


@dataclass(frozen=True, slots=True)
class Echo:
    """One echo; `rtt_ms` is there for a REPLY only. `detail` says why it is none, or why a REPLY
    came another way than the preferred one."""

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
        request = ICMPRequest(address, self._id, self._sequence, payload=_PAYLOAD)
        with AsyncSocket(opened) as sock:
            return await self._exchange(sock, request, timeout_s)

    async def _exchange(self, sock: AsyncSocket, request: ICMPRequest, timeout_s: float) -> Echo:
        try:
            # A raw socket that is not connected wakes for every reply to this host: with many echoes
            # out, each reply would cost as many readings, and all round trips would grow by them.
            sock.sock.connect((request.destination, 0))
            began = self._clock.now()
            async with asyncio.timeout(timeout_s * 1.1):
                sock.send(request)
                reply = await sock.receive(request, timeout_s)
        except (TimeoutExceeded, TimeoutError):
            if self._clock.now() - began < timeout_s * EARLY:
                return self._end(Outcome.DROPPED, "the wall clock jumped")
            return self._end(Outcome.LOST, f"no reply within {timeout_s:g} s")
        except (ICMPSocketError, OSError) as error:
            return self._failed(error)
        elapsed = self._clock.now() - began
        _heed_cancellation()
        try:
            reply.raise_for_status()
        except ICMPError as error:
            return self._end(Outcome.LOST, str(error))
        rtt = reply.time - request.time
        if not credible(rtt, elapsed):
            return self._end(Outcome.DROPPED, "the wall clock jumped")
        return Echo(Outcome.REPLY, self.method, rtt * 1000)

    def _failed(self, error: ICMPSocketError | OSError) -> Echo:
        """icmplib hides the kernel's reason behind its own words."""
        cause = error if isinstance(error, OSError) else error.__context__
        return _failed(self.method, cause if isinstance(cause, OSError) else OSError(str(error)), "ICMP")

    def _end(self, outcome: Outcome, detail: str) -> Echo:
        return Echo(outcome, self.method, detail=detail)


def _open(address: str) -> ICMPv4Socket | ICMPv6Socket:
    """A socket for `address`, raw if allowed. Raises icmplib's errors."""
    kind = ICMPv6Socket if ":" in address else ICMPv4Socket
    try:
        return kind(privileged=True)
    except SocketPermissionError:
        return kind(privileged=False)


def _heed_cancellation() -> None:
    """asyncio.wait_for, by which icmplib waits, swallows a cancellation that comes together with the
    reply (up to Python 3.11): a path that is taken out would be measured for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _failed(method: PathMethod, error: OSError, what: str) -> Echo:
    """A send that the kernel refused: the path's fault, unless this host holds it back."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.errno in HELD_BACK:
        return Echo(
            Outcome.UNABLE, method, detail=f"{what}: this host lets none out ({reason}): a firewall rule?"
        )
    outcome = Outcome.UNABLE if error.errno in LOCAL_TROUBLE else Outcome.LOST
    return Echo(outcome, method, detail=f"{what}: {reason}")


class TcpProber:
    """The time of a TCP handshake: one round trip, plus what the peer's kernel needs."""

    method = PathMethod.TCP_CONNECT

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
        """Connect to `port` and close again. A refusal is a loss: nothing serves there.

        What is not answered within SYN_AGAIN_S is lost, however long `timeout_s` is.
        """
        if not 0 < port < 65536:
            return self._end(Outcome.UNABLE, "the gateway has no TCP port to measure by")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        timeout_s = min(timeout_s, SYN_AGAIN_S)
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setblocking(False)
                began = self._clock.now()
                async with asyncio.timeout(timeout_s):
                    await asyncio.get_running_loop().sock_connect(sock, (address, port))
                rtt_s = self._clock.now() - began
        except TimeoutError:
            return self._end(Outcome.LOST, f"no connection within {timeout_s:g} s")
        except OSError as error:
            return _failed(self.method, error, f"port {port}")
        if rtt_s >= SYN_AGAIN_S:
            return self._end(Outcome.LOST, "the first SYN was not answered")
        return Echo(Outcome.REPLY, self.method, rtt_s * 1000)

    def _end(self, outcome: Outcome, detail: str) -> Echo:
        return Echo(outcome, self.method, detail=detail)
