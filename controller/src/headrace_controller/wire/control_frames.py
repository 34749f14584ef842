"""Frames without a message: settings, pings, credit, resets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace_controller.wire import frames
from headrace_controller.wire.frames import ConnectionFault, ErrorCode, Frame, Setting
from headrace_controller.wire.liveness import Liveness
from headrace_controller.wire.outgoing import Outgoing
from headrace_controller.wire.streams import Streams


class ControlFrames:
    """Does what a frame asks for. Kinds that nobody knows are left alone, as HTTP/2 demands."""

    def __init__(self, outgoing: Outgoing, streams: Streams, liveness: Liveness) -> None:
        self._outgoing = outgoing
        self._streams = streams
        self._liveness = liveness
        self._handlers: Final[dict[int, Callable[[Frame], int]]] = {
            frames.PRIORITY: self._take_priority,
            frames.RST_STREAM: self._take_reset,
            frames.SETTINGS: self._take_settings,
            frames.PUSH_PROMISE: self._take_promise,
            frames.PING: self._take_ping,
            frames.GOAWAY: self._take_goaway,
            frames.WINDOW_UPDATE: self._take_credit,
        }

    def take(self, each: Frame) -> int:
        """Take a frame; how much work it was. Raises ConnectionFault."""
        handler = self._handlers.get(each.kind)
        return handler(each) if handler is not None else 1

    def _take_reset(self, each: Frame) -> int:
        _require_size(each, 4)
        self._streams.require_known(each.stream)
        call = self._streams.get(each.stream)
        if call is not None:
            call.abandon()
        return 1

    def _take_settings(self, each: Frame) -> int:
        _require_connection(each)
        if each.flags & frames.ACK:
            _require_size(each, 0)
            return 1
        found = frames.read_settings(each.payload)
        self._liveness.begun = True
        if (table := found.get(Setting.HEADER_TABLE_SIZE)) is not None:
            self._outgoing.limit_table(table)
        self._outgoing.put(frames.frame(frames.SETTINGS, frames.ACK, 0))
        if (window := found.get(Setting.INITIAL_WINDOW_SIZE)) is not None:
            self._streams.resize(window)
        return 1 + len(self._streams)

    def _take_ping(self, each: Frame) -> int:
        _require_connection(each)
        _require_size(each, 8)
        if not each.flags & frames.ACK:
            self._outgoing.put(frames.frame(frames.PING, frames.ACK, 0, each.payload))
        return 1

    def _take_goaway(self, each: Frame) -> int:
        """The peer opens no more calls; what runs goes on."""
        _require_connection(each)
        if len(each.payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a GOAWAY that is cut off")
        return 1

    def _take_credit(self, each: Frame) -> int:
        _require_size(each, 4)
        size = int.from_bytes(each.payload, "big") & frames.MAX_WINDOW
        if each.stream:
            self._credit_call(each.stream, size)
            return 1
        if not size:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "credit of nothing")
        if not self._outgoing.window.grow(size):
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window over 2^31-1")
        self._streams.push_all()
        return 1 + len(self._streams)

    def _credit_call(self, stream: int, size: int) -> None:
        self._streams.require_known(stream)
        call = self._streams.get(stream)
        if call is None:
            return
        if not size:
            call.break_off(ErrorCode.PROTOCOL_ERROR)
        elif not call.window.grow(size):
            call.break_off(ErrorCode.FLOW_CONTROL_ERROR)
        else:
            call.push()

    def _take_priority(self, each: Frame) -> int:
        """Taken and not heeded, as all of RFC 9113's priorities."""
        if not each.stream:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a priority of no stream")
        _require_size(each, 5)
        return 1

    def _take_promise(self, each: Frame) -> int:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "clients promise nothing")


def _require_size(each: Frame, size: int) -> None:
    if len(each.payload) != size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of kind {each.kind} of another size")


def _require_connection(each: Frame) -> None:
    if each.stream:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a frame of kind {each.kind} on a stream")
