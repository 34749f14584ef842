"""The calls of one connection: opened by header fields, found by their stream."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_controller.wire import frames
from headrace_controller.wire.call import Call, Method, OnError, Peer
from headrace_controller.wire.frames import ConnectionFault, ErrorCode
from headrace_controller.wire.headers import Block
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.messages import CallFault, MessageReader, Room, Status
from headrace_controller.wire.outgoing import Outgoing
from headrace_controller.wire.requests import (
    Fields,
    MalformedError,
    NotGrpcError,
    Request,
    ending,
    read_request,
)
from headrace_controller.wire.windows import Outbound


class Streams:
    """Calls by stream. `last` is the highest stream that the peer opened; while `draining` it may open
    none."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        limits: Limits,
        room: Room,
        peer: Peer,
        outgoing: Outgoing,
        on_error: OnError,
    ) -> None:
        self.last = 0
        self.draining = False
        self._methods = methods
        self._limits = limits
        self._room = room
        self._peer = peer
        self._outgoing = outgoing
        self._on_error = on_error
        self._first_window = frames.DEFAULT_WINDOW
        self._calls: dict[int, Call] = {}
        self._read: tuple[list[tuple[str, str]], Request] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def all(self) -> list[Call]:
        """The calls that have not ended."""
        return list(self._calls.values())

    def get(self, stream: int) -> Call | None:
        """The call of a stream, None where it has ended or never was."""
        return self._calls.get(stream)

    def require_known(self, stream: int) -> None:
        """Raise ConnectionFault where the peer never opened the stream."""
        if not stream % 2 or stream > self.last:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream} was not opened")

    def take(self, block: Block, now: float) -> Call | None:
        """Take header fields: a new call, or the end of one. The call whose input ended with them."""
        if block.stream > self.last:
            self.last = block.stream
            return self._open(block, now)
        call = self._calls.get(block.stream)
        if call is None:
            return None
        if call.input_ended or not block.last:
            call.break_off(ErrorCode.PROTOCOL_ERROR)
            return None
        call.input_ended = True
        return call

    def resize(self, first_window: int) -> None:
        """The peer set another first window, which holds for open calls, too. Raises ConnectionFault."""
        change = first_window - self._first_window
        self._first_window = first_window
        for call in self.all():
            if not call.window.resize(change):
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window over 2^31-1")
            call.push()

    def push_all(self) -> None:
        """Send what waits in calls, as far as the windows allow."""
        for call in self.all():
            call.push()

    def _open(self, block: Block, now: float) -> Call | None:
        if self.draining or len(self._calls) >= self._limits.streams:
            self._outgoing.put(frames.reset(block.stream, ErrorCode.REFUSED_STREAM))
            return None
        try:
            request = self._read_request(block.fields)
            method = self._methods.get(request.path)
            if method is None:
                raise CallFault(Status.UNIMPLEMENTED, "Method not found!")
        except MalformedError:
            self._outgoing.put(frames.reset(block.stream, ErrorCode.PROTOCOL_ERROR))
        except NotGrpcError as error:
            self._answer(block, [(":status", str(error.status))])
        except CallFault as fault:
            self._answer(block, ending(fault.status, fault.details, opened=False))
        else:
            return self._begin(block, request, method, now)
        return None

    def _read_request(self, fields: list[tuple[str, str]]) -> Request:
        """Fields that were remembered are the same object."""
        if self._read is None or self._read[0] is not fields:
            self._read = fields, read_request(fields)
        return self._read[1]

    def _begin(self, block: Block, request: Request, method: Method, now: float) -> Call | None:
        inbox = MessageReader(self._limits.message, self._room, request.encoding)
        window = Outbound(self._first_window)
        call = Call(block.stream, self._peer, self._outgoing, inbox, window, self._ended, self._on_error)
        call.input_ended = block.last
        call.fields = request.fields
        if request.timeout_s is not None:
            call.deadline = now + request.timeout_s
        self._calls[block.stream] = call
        call.begin(method)
        return call if block.last else None

    def _answer(self, block: Block, fields: Fields) -> None:
        """Answer a request that no call is made of."""
        self._outgoing.headers(block.stream, fields, last=True)
        if not block.last:
            self._outgoing.put(frames.reset(block.stream, ErrorCode.NO_ERROR))

    def _ended(self, call: Call) -> None:
        self._calls.pop(call.stream, None)
