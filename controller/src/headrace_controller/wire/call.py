"""The server's side of one call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from headrace_controller.wire.frames import DATA, MAX_FRAME_SIZE, ErrorCode, credit, frame, reset
from headrace_controller.wire.messages import CallFault, MessageReader, Status, packed
from headrace_controller.wire.outgoing import Outgoing
from headrace_controller.wire.requests import OPENING, ending
from headrace_controller.wire.windows import Inbound, Outbound


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end: `address` for people; `local`: on this machine; `names` of its certificate,
    which was checked."""

    address: str
    local: bool = False
    names: tuple[str, ...] = ()


class Receiver(Protocol):
    """What a method does with one call. Nothing may wait; an exception ends the call with UNKNOWN, a
    CallFault with what it says."""

    def message(self, data: bytes) -> None:
        """One message came."""
        ...

    def half_closed(self) -> None:
        """The caller will send nothing more; it waits for the end."""
        ...

    def closed(self) -> None:
        """The call has ended, whoever ended it. Comes once, and last."""
        ...


Method = Callable[["Call"], Receiver]
"""Begins a call."""
OnError = Callable[[str, Exception], None]
"""Hears of a fault of the program's own: where, and which."""


class Call:
    """One call: `send` and `end` are for its receiver, the rest for its connection.

    Messages that the peer's windows have no room for wait; `queued` says how many, the receiver bounds it,
    and `on_sent` hears that all are sent. `fields` are the header fields that the call began with.
    """

    def __init__(
        self,
        stream: int,
        peer: Peer,
        outgoing: Outgoing,
        inbox: MessageReader,
        window: Outbound,
        on_end: Callable[[Call], None],
        on_error: OnError,
    ) -> None:
        self.stream = stream
        self.peer = peer
        self.inbox = inbox
        self.inbound = Inbound()
        self.window = window
        self.deadline: float | None = None
        self.fields: Mapping[str, str] = MappingProxyType({})
        self.on_sent: Callable[[], None] | None = None
        self._held = False
        self.input_ended = False
        self.ended = False
        self._outgoing = outgoing
        self._on_end = on_end
        self._on_error = on_error
        self._receiver: Receiver | None = None
        self._opened = False
        self._waiting: deque[bytes] = deque()
        self._sent = 0
        self._last_word: tuple[Status, str] | None = None

    @property
    def queued(self) -> int:
        """Messages that were not sent yet, or not wholly."""
        return len(self._waiting)

    def expects(self, size: int) -> bool:
        """Whether a whole message may come in a frame of `size` bytes: none is under way, none was last."""
        inbox = self.inbox
        return not (self.input_ended or inbox.waiting) and size <= inbox.max_size and self.inbound.has(size)

    def hold(self, held: bool) -> None:
        """While held the peer is given no more credit: it can send what its window has left, and no more."""
        self._held = held
        self.give_credit()

    def give_credit(self) -> None:
        """Let the peer send as much again as it has sent, where that is due."""
        if not self._held and not self.input_ended and not self.ended and (due := self.inbound.due()):
            self._outgoing.put(credit(self.stream, due))

    def send(self, message: bytes) -> None:
        """Send a message, now or when the peer takes it. Nothing happens once the call has ended; it ends
        here where the peer has left too much unread of what all its calls were sent."""
        if self.ended:
            return
        if self._outgoing.is_full:
            self.end(Status.RESOURCE_EXHAUSTED, "read the answers before asking on")
            return
        data = packed(message)
        self._waiting.append(data)
        self._outgoing.waiting += len(data)
        self.push()

    def end(self, status: Status, details: str = "") -> None:
        """End the call; what waits to be sent is dropped. Nothing happens once it has ended."""
        if self.ended:
            return
        self._outgoing.headers(self.stream, ending(status, details, self._opened), last=True)
        if not self.input_ended:
            self._outgoing.put(reset(self.stream, ErrorCode.NO_ERROR))
        self.abandon()

    def finish(self, status: Status, details: str = "") -> None:
        """End the call as soon as all that waits was sent; what the caller still says is not heard."""
        self._last_word = (status, details)
        self._end_if_sent()

    def fail(self, error: Exception) -> None:
        """End the call for a fault of the program's own."""
        self._on_error(f"call of {self.peer.address}", error)
        self.end(Status.UNKNOWN, f"Unexpected {type(error)}: {error}")

    def break_off(self, code: ErrorCode) -> None:
        """End the call with an error of HTTP/2."""
        if not self.ended:
            self._outgoing.put(reset(self.stream, code))
            self.abandon()

    def abandon(self) -> None:
        """The call is over, and the peer knows."""
        if self.ended:
            return
        self.ended = True
        self._outgoing.waiting -= sum(map(len, self._waiting)) - self._sent
        self._waiting.clear()
        self._sent = 0
        self.inbox.drop()
        self._on_end(self)
        receiver = self._receiver
        if receiver is not None:
            self._guarded(receiver.closed)

    def begin(self, method: Method) -> None:
        """Hand the call to what serves it."""
        try:
            self._receiver = receiver = method(self)
        except CallFault as fault:
            self.end(fault.status, fault.details)
            return
        except Exception as error:  # noqa: BLE001 - one call's trouble must not end the others
            self.fail(error)
            return
        if self.ended:
            self._guarded(receiver.closed)

    def deliver(self, message: bytes) -> None:
        """Hand a message over."""
        receiver = self._receiver
        if receiver is None or self._last_word is not None:
            return
        try:
            receiver.message(message)
        except CallFault as fault:
            self.end(fault.status, fault.details)
        except Exception as error:  # noqa: BLE001 - one call's trouble must not end the others
            self.fail(error)

    def finish_input(self) -> None:
        """All that the caller had to say was handed over."""
        if self.inbox.waiting:
            self.end(Status.INTERNAL, "the last message is cut off")
        elif self._receiver is not None and not self.ended and self._last_word is None:
            self._guarded(self._receiver.half_closed)

    def push(self) -> None:
        """Send what waits, as far as the windows allow."""
        outgoing, window = self._outgoing, self.window
        while self._waiting and outgoing.writable:
            size = len(self._waiting[0])
            room = min(outgoing.window.left, window.left, MAX_FRAME_SIZE)
            begun = self._sent or (window.may_begin(size) and outgoing.window.may_begin(size))
            if room <= 0 or not begun:
                return
            if not self._opened:
                self._opened = True
                outgoing.headers(self.stream, OPENING, last=False)
            part = self._waiting[0][self._sent : self._sent + room]
            outgoing.window.left -= len(part)
            window.left -= len(part)
            outgoing.waiting -= len(part)
            self._sent += len(part)
            if self._sent == size:
                self._waiting.popleft()
                self._sent = 0
            outgoing.put(frame(DATA, 0, self.stream, part))
        self._end_if_sent()
        if self.on_sent is not None and not self._waiting:
            self.on_sent()

    def _end_if_sent(self) -> None:
        if self._last_word is not None and not self._waiting:
            self.end(*self._last_word)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - one call's trouble must not end the others
            self.fail(error)
