"""One echo over a path: by ICMP, or by the time that a TCP connect takes."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from icmplib import (
    ICMPError,
    ICMPReply,
    ICMPSocketError,
    ICMPv4Socket,
    ICMPv6Socket,
    SocketPermissionError,
)

from headrace_agent.collectors.network.estimate import credible
from headrace_agent.collectors.network.rights import NOT_ALLOWED
from headrace_agent.collectors.readings import PathMethod
from headrace_shared.clock import Clock

# The kernel sends an unanswered SYN again after this long: what is answered later may be the answer
# to the second, and its time no round trip.
SYN_AGAIN_S = 1.0
# icmplib draws a payload at random for each echo otherwise; the numbers tell them apart.
_PAYLOAD = b"headrace" * 7
_PACKET_BYTES = 1024
# A socket hears whatever its gateway sends to this host; no more of it is read at one go.
_PACKETS = 16
LOCAL_TROUBLE = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
)
# A local firewall answers a send with these; so does a broadcast address.
HELD_BACK = frozenset((errno.EPERM, errno.EACCES))


IcmpSocket: TypeAlias = "ICMPv4Socket | ICMPv6Socket"


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
        with opened:
            return await self._exchange(opened, address, timeout_s)

    async def _exchange(self, opened: IcmpSocket, address: str, timeout_s: float) -> Echo:
        try:
            # A raw socket that is not connected wakes for every reply to this host: with many echoes
            # out, each reply would cost as many readings, and all round trips would grow by them.
            opened.sock.connect((address, 0))
            opened.blocking = False
            # The kernel puts its own number in the place of ours where the socket is not raw.
            number = self._id if opened.is_privileged else opened.sock.getsockname()[1]
            packet = opened._create_packet(number, self._sequence, _PAYLOAD)
            began, sent_ns = self._clock.now(), self._clock.wall_ns()
            opened.sock.send(packet)
            reply, heard = await self._hear(opened, (number, self._sequence), timeout_s)
        except TimeoutError:
            return self._end(Outcome.LOST, f"no reply within {timeout_s:g} s")
        except OSError as error:
            return _failed(self.method, error, "ICMP")
        try:
            reply.raise_for_status()
        except ICMPError as error:
            return self._end(Outcome.LOST, str(error))
        rtt = reply.time - sent_ns / 1e9
        if not credible(rtt, heard - began):
            return self._end(Outcome.DROPPED, "the wall clock jumped")
        return Echo(Outcome.REPLY, self.method, rtt * 1000)

    async def _hear(
        self, opened: IcmpSocket, numbers: tuple[int, int], timeout_s: float
    ) -> tuple[ICMPReply, float]:
        """The reply that bears these numbers, and when it was read. Raises TimeoutError and OSError.

        icmplib's own waiting makes a task for every packet, and goes by the wall clock.
        """
        loop, descriptor = asyncio.get_running_loop(), opened.sock.fileno()
        heard: asyncio.Future[tuple[ICMPReply, float]] = loop.create_future()

        def read() -> None:
            if heard.done():
                return
            try:
                reply = self._take(opened, numbers)
            except OSError as error:
                heard.set_exception(error)
                return
            if reply is not None:
                heard.set_result((reply, self._clock.now()))

        def give_up() -> None:
            if not heard.done():
                heard.set_exception(TimeoutError())

        loop.add_reader(descriptor, read)
        timer = loop.call_later(timeout_s, give_up)
        try:
            return await heard
        finally:
            timer.cancel()
            loop.remove_reader(descriptor)

    def _take(self, opened: IcmpSocket, numbers: tuple[int, int]) -> ICMPReply | None:
        """The reply, if it is among what has come; what is for others is dropped."""
        for _ in range(_PACKETS):
            try:
                packet, source = opened.sock.recvfrom(_PACKET_BYTES)
            except (BlockingIOError, InterruptedError):
                return None
            reply = opened._parse_reply(packet, source[0], self._clock.wall_ns() / 1e9)
            if reply is not None and (reply.id, reply.sequence) == numbers:
                return reply
        return None

    def _end(self, outcome: Outcome, detail: str) -> Echo:
        return Echo(outcome, self.method, detail=detail)


def _open(address: str) -> IcmpSocket:
    """A socket for `address`, raw if allowed. Raises icmplib's errors."""
    kind = ICMPv6Socket if ":" in address else ICMPv4Socket
    try:
        return kind(privileged=True)
    except SocketPermissionError:
        return kind(privileged=False)


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
