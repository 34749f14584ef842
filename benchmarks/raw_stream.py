"""One gRPC stream over HTTP/2, written by hand: the least that a load generator needs.

A gRPC client spends more on a message than the server that is to be measured. This one writes frames
(RFC 9113) on a plain transport: one call a connection, as an agent has it. It keeps to the peer's flow
control, answers its pings and settings, and hands over the answers' messages.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_STREAM, _END_HEADERS, _PADDED = 0x1, 0x1, 0x4, 0x8
_INITIAL_WINDOW_SIZE: Final = 4
_DEFAULT_WINDOW: Final = 65_535
_FRAME_HEAD: Final = 9
_GRPC_HEAD: Final = 5
_STREAM: Final = 1
_MAX_FRAME: Final = 16_384
# Length (3 bytes, as a byte and a short), type, flags and stream of a frame; then gRPC's own head.
_frame_head: Final = struct.Struct("!BHBBI")
_data_head: Final = struct.Struct("!BHBBIBI")


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _frame_head.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header field that is not indexed and not compressed; both parts shorter than 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class RawStream(asyncio.Protocol):
    """One call on one connection. `on_message` hears each answer, `on_end` why the call has ended."""

    def __init__(
        self, path: str, authority: str, on_message: Callable[[bytes], None], on_end: Callable[[str], None]
    ) -> None:
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": authority,
            "content-type": "application/grpc",
            "te": "trailers",
        }
        self._headers = b"".join(_literal(name, value) for name, value in fields.items())
        self._on_message = on_message
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._read = bytearray()
        self._answer = bytearray()
        self._waiting: deque[bytes] = deque()
        self._first_window = _DEFAULT_WINDOW
        self._connection_credit = _DEFAULT_WINDOW
        self._stream_credit = _DEFAULT_WINDOW
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        settings = _frame(_SETTINGS, 0, 0)
        transport.write(_PREFACE + settings + _frame(_HEADERS, _END_HEADERS, _STREAM, self._headers))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"the connection was lost: {exc or 'closed by the peer'}")

    def send(self, message: bytes) -> None:
        """Send one message, or keep it until the peer's flow control lets it go."""
        size = len(message) + _GRPC_HEAD
        if size > _MAX_FRAME:
            raise ValueError(f"a message of {len(message)} bytes does not fit into one frame")
        frame = _data_head.pack(0, size, _DATA, 0, _STREAM, 0, len(message)) + message
        if self._waiting or size > self._connection_credit or size > self._stream_credit:
            self._waiting.append(frame)
        else:
            self._write(frame)

    def close(self) -> None:
        """End the call and the connection."""
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def _write(self, frame: bytes) -> None:
        size = len(frame) - _FRAME_HEAD
        self._connection_credit -= size
        self._stream_credit -= size
        assert self._transport is not None
        self._transport.write(frame)

    def _write_waiting(self) -> None:
        while self._waiting:
            size = len(self._waiting[0]) - _FRAME_HEAD
            if size > self._connection_credit or size > self._stream_credit:
                return
            self._write(self._waiting.popleft())

    def data_received(self, data: bytes) -> None:
        self._read += data
        at = 0
        while len(self._read) - at >= _FRAME_HEAD:
            high, low, kind, flags, stream = _frame_head.unpack_from(self._read, at)
            end = at + _FRAME_HEAD + (high << 16 | low)
            if len(self._read) < end:
                break
            self._take(kind, flags, stream, bytes(self._read[at + _FRAME_HEAD : end]))
            at = end
        del self._read[:at]
        self._write_waiting()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind == _SETTINGS and not flags & _ACK:
            self._take_settings(payload)
            self._transport.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE:
            self._take_credit(stream, int.from_bytes(payload, "big"))
        elif kind == _DATA:
            self._take_answer(payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload)
            self._give_credit(len(payload))
        elif kind == _RST_STREAM:
            self._end(f"the call was reset, HTTP/2 error {int.from_bytes(payload, 'big')}")
        elif kind == _GOAWAY:
            self._end(f"the peer ends the connection: {payload[8:].decode('utf-8', 'replace')}")
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            self._end(f"the peer ended the call: {payload.decode('latin-1')!r}")

    def _take_settings(self, payload: bytes) -> None:
        for setting, value in struct.iter_unpack("!HI", payload):
            if setting == _INITIAL_WINDOW_SIZE:
                self._stream_credit += value - self._first_window
                self._first_window = value

    def _take_credit(self, stream: int, size: int) -> None:
        if stream:
            self._stream_credit += size
        else:
            self._connection_credit += size

    def _give_credit(self, size: int) -> None:
        if size:
            assert self._transport is not None
            credit = size.to_bytes(4, "big")
            self._transport.write(
                _frame(_WINDOW_UPDATE, 0, 0, credit) + _frame(_WINDOW_UPDATE, 0, _STREAM, credit)
            )

    def _take_answer(self, data: bytes) -> None:
        self._answer += data
        while len(self._answer) >= _GRPC_HEAD:
            end = _GRPC_HEAD + int.from_bytes(self._answer[1:_GRPC_HEAD], "big")
            if len(self._answer) < end:
                return
            self._on_message(bytes(self._answer[_GRPC_HEAD:end]))
            del self._answer[:end]

    def _end(self, why: str) -> None:
        if not self._ended:
            self._ended = True
            self._on_end(why)
