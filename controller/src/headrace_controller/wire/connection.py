"""The server's side of one HTTP/2 connection: bytes in, bytes and calls out; no socket, no clock."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from headrace_controller.wire import frames
from headrace_controller.wire.call import Call, Method, OnError, Peer
from headrace_controller.wire.control_frames import ControlFrames
from headrace_controller.wire.frames import ConnectionFault, ErrorCode, Frame, Setting
from headrace_controller.wire.headers import Block, HeaderBlocks
from headrace_controller.wire.limits import CALL_OVERHEAD, CALL_WORK, Allowance, Limits
from headrace_controller.wire.liveness import Liveness, Step
from headrace_controller.wire.messages import HEAD_SIZE, CallFault, Room, Status
from headrace_controller.wire.outgoing import Outgoing
from headrace_controller.wire.streams import Streams
from headrace_controller.wire.windows import Inbound

_PING: Final = b"headrace"
_BYTES_A_UNIT: Final = 256
# A frame's head and, behind it, that of a gRPC message.
_beat_head: Final = struct.Struct("!BHBBIBI")
_BEAT_HEAD_SIZE: Final = _beat_head.size


class Connection:
    """Serves the calls of one peer.

    `receive` bytes, then `turn` until there is nothing more to do; write what `outgoing` has whenever
    `on_output` says so, and close once `finished`. `now` is a monotonic clock, s.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        limits: Limits,
        room: Room,
        peer: Peer,
        on_output: Callable[[], None],
        on_error: OnError,
        now: float,
    ) -> None:
        self.outgoing = Outgoing(on_output, limits.unread)
        self.finished = False
        self.fault = ""
        """Why the peer was cut off."""
        self._limits = limits
        self._frames = frames.FrameReader()
        self._blocks = HeaderBlocks(limits)
        self._inbound = Inbound()
        self._streams = Streams(methods, limits, room, peer, self.outgoing, on_error)
        self._reading: Call | None = None
        self._allowance = Allowance(limits.overhead, limits.overhead_rate, now)
        self._liveness = Liveness(limits, now)
        self._now = now
        self._control = ControlFrames(self.outgoing, self._streams, self._liveness)

    @property
    def calls(self) -> int:
        """Calls that have not ended."""
        return len(self._streams)

    def begin(self) -> None:
        """Say what this side allows; the first thing to be sent."""
        own = {
            Setting.MAX_CONCURRENT_STREAMS: self._limits.streams,
            Setting.MAX_HEADER_LIST_SIZE: self._limits.header_list,
        }
        self.outgoing.put(frames.settings(own))

    def receive(self, data: bytes, now: float) -> bool:
        """Take bytes of the peer; True where `turn` must work them off."""
        self._liveness.heard(now)
        if self._take_beat(data):
            return False
        self._frames.feed(data)
        return True

    def turn(self, now: float) -> bool:
        """Do a bounded piece of work; True where more is left, and others should have their turn first."""
        self._now = now
        try:
            return self._work()
        except ConnectionFault as fault:
            self.fail(fault.code, fault.why)
            return False

    def tick(self, now: float) -> None:
        """Time has passed: to be called about every second."""
        for call in self._streams.all():
            if call.deadline is not None and call.deadline <= now:
                call.end(Status.DEADLINE_EXCEEDED, "Deadline Exceeded")
        step = self._liveness.tick(bool(self._streams), now)
        if step is Step.PING:
            self.outgoing.put(frames.frame(frames.PING, 0, 0, _PING))
        elif step is Step.END:
            self.drain()
            self.close()
        elif step is Step.DROP:
            self.close()

    def drain(self) -> None:
        """Take no new calls; those that are open go on."""
        if not self._streams.draining and not self.finished:
            self._streams.draining = True
            self.outgoing.put(frames.goaway(self._streams.last, ErrorCode.NO_ERROR))

    def end_calls(self, status: Status, details: str) -> None:
        """End all calls in order, and then the connection."""
        for call in self._streams.all():
            call.end(status, details)
        self.close()

    def fail(self, code: ErrorCode, why: str) -> None:
        """Cut the peer off, and say why."""
        if not self.finished:
            self.fault = f"{code.name}: {why}"
            self.outgoing.put(frames.goaway(self._streams.last, code, why))
            self.close()

    def close(self) -> None:
        """The connection is gone, or goes once all is written: its calls are over."""
        self.finished = True
        self._reading = None
        for call in self._streams.all():
            call.abandon()

    def set_writable(self, writable: bool) -> None:
        """Whether the peer reads; what waited for it goes out when it does again."""
        self.outgoing.writable = writable
        if writable:
            self._streams.push_all()

    def _take_beat(self, data: bytes) -> bool:
        """Take what nearly every read is, one DATA frame with one whole message, without the detours that
        all else needs; False, and nothing is changed, where it is something else."""
        size = len(data) - frames.HEAD_SIZE
        if size < HEAD_SIZE or self.finished or self._reading is not None or self._frames.waiting:
            return False
        high, low, kind, flags, stream, compressed, length = _beat_head.unpack_from(data)
        # DATA is kind 0, and neither its end nor padding, nor a compressed message may be flagged.
        if kind | flags | compressed or high << 16 | low != size or length != size - HEAD_SIZE:
            return False
        call = self._streams.get(stream)
        if call is None or self._blocks.is_open or not call.expects(size) or not self._inbound.has(size):
            return False
        self._inbound.take(size)
        call.inbound.take(size)
        self._give_credit(call)
        call.deliver(data[_BEAT_HEAD_SIZE:])
        return True

    def _give_credit(self, call: Call) -> None:
        if due := self._inbound.due():
            self.outgoing.put(frames.credit(0, due))
        call.give_credit()

    def _work(self) -> bool:
        budget = self._limits.turn
        while not self.finished:
            if self._reading is not None:
                budget = self._hand_over(self._reading, budget)
            if budget <= 0:
                return True
            each = self._frames.next()
            if each is None:
                return False
            budget -= self._take(each)
        return False

    def _hand_over(self, call: Call, budget: int) -> int:
        """Hand over the messages that came whole; what is left of the budget."""
        inbox = call.inbox
        try:
            while not call.ended:
                if budget <= 0:
                    return budget
                message = inbox.next()
                if message is None:
                    if call.input_ended:
                        call.finish_input()
                    break
                budget -= 1 + len(message) // _BYTES_A_UNIT
                call.deliver(message)
        except CallFault as fault:
            call.end(fault.status, fault.details)
        self._reading = None
        return budget

    def _take(self, each: Frame) -> int:
        """Take a frame; how much work it was."""
        if self._blocks.is_open and each.kind != frames.CONTINUATION:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "header fields are interrupted")
        if not self._liveness.begun and each.kind != frames.SETTINGS:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is no SETTINGS")
        if each.kind == frames.DATA:
            return self._take_data(each)
        self._spend(CALL_OVERHEAD if each.kind == frames.HEADERS else 1)
        if each.kind == frames.HEADERS:
            return self._take_headers(each)
        if each.kind == frames.CONTINUATION:
            return self._take_block(self._blocks.proceed(each))
        return self._control.take(each)

    def _spend(self, count: int) -> None:
        if not self._allowance.spend(count, self._now):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry no message")

    def _take_data(self, each: Frame) -> int:
        size = len(each.payload)
        if not self._inbound.take(size):
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more than the connection's window")
        if due := self._inbound.due():
            self.outgoing.put(frames.credit(0, due))
        payload = frames.without_padding(each)
        call = self._streams.get(each.stream)
        if call is None or call.input_ended:
            self._take_late(each, call)
        elif not call.inbound.take(size):
            call.break_off(ErrorCode.FLOW_CONTROL_ERROR)
        else:
            self._feed(call, each, payload)
        return 1

    def _feed(self, call: Call, each: Frame, payload: bytes) -> None:
        if each.flags & frames.END_STREAM:
            call.input_ended = True
        else:
            call.give_credit()
        if not payload:
            self._spend(1)
        self._reading = call
        try:
            call.inbox.feed(payload)
        except CallFault as fault:
            call.end(fault.status, fault.details)

    def _take_late(self, each: Frame, call: Call | None) -> None:
        """What comes after a stream's end: on its way when this side ended it, or a fault."""
        self._streams.require_known(each.stream)
        self._spend(1)
        if call is not None:
            call.break_off(ErrorCode.STREAM_CLOSED)

    def _take_headers(self, each: Frame) -> int:
        if not each.stream % 2:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a call on stream {each.stream}")
        return self._take_block(self._blocks.begin(each))

    def _take_block(self, block: Block | None) -> int:
        if block is None:
            return 1
        call = self._streams.take(block, self._now)
        if call is not None and not call.ended:
            self._reading = call
        return CALL_WORK
