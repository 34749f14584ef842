"""HTTP/2 frames (RFC 9113, section 4): bytes to frames, and frames to bytes."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE: Final = 9
MAX_FRAME_SIZE: Final = 16_384
"""The largest payload taken and sent, bytes: the least that every peer must take."""
DEFAULT_WINDOW: Final = 65_535
MAX_WINDOW: Final = 2**31 - 1
MAX_STREAM_ID: Final = 2**31 - 1

DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

_head: Final = struct.Struct("!BHBBI")
_setting: Final = struct.Struct("!HI")


class ErrorCode(IntEnum):
    """Why a stream or a connection ends (RFC 9113, section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    ENHANCE_YOUR_CALM = 0xB


class Setting(IntEnum):
    """What peers tell each other of themselves (RFC 9113, section 6.5.2)."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


class ConnectionFault(Exception):  # noqa: N818 (the peer's, not the program's)
    """The peer broke the protocol in a way that ends the whole connection."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class Frame(NamedTuple):
    """One frame; `kind` may be one that nobody knows."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class FrameReader:
    """Cuts what a client sends into frames. The connection preface must come first."""

    def __init__(self) -> None:
        self._bytes = b""
        self._at = 0
        self._greeted = False

    @property
    def waiting(self) -> int:
        """Bytes that no frame was made of yet."""
        return len(self._bytes) - self._at

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        if self._at < len(self._bytes):
            self._bytes = self._bytes[self._at :] + data
        else:
            self._bytes = data
        self._at = 0

    def next(self) -> Frame | None:
        """The next whole frame, None where more bytes are needed. Raises ConnectionFault."""
        if not self._greeted and not self._greet():
            return None
        data, at = self._bytes, self._at
        if len(data) - at < HEAD_SIZE:
            return None
        high, low, kind, flags, stream = _head.unpack_from(data, at)
        size = high << 16 | low
        if size > MAX_FRAME_SIZE:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        at += HEAD_SIZE
        end = at + size
        if end > len(data):
            return None
        self._at = end
        return Frame(kind, flags, stream & MAX_STREAM_ID, data[at:end])

    def _greet(self) -> bool:
        """Whether the preface is there. Wrong bytes are told at once: the peer may wait for an answer."""
        found = self._bytes[: len(PREFACE)]
        if not PREFACE.startswith(found):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "no HTTP/2 connection preface")
        if len(found) < len(PREFACE):
            return False
        self._greeted = True
        self._at = len(PREFACE)
        return True


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    size = len(payload)
    return _head.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def settings(values: dict[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_setting.pack(*each) for each in values.items()))


def goaway(last_stream: int, code: ErrorCode, why: str = "") -> bytes:
    """A GOAWAY frame: streams above `last_stream` were not and will not be served."""
    return frame(GOAWAY, 0, 0, struct.pack("!II", last_stream, code) + why.encode()[:256])


def reset(stream: int, code: ErrorCode) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def credit(stream: int, size: int) -> bytes:
    """A WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def read_settings(payload: bytes) -> dict[int, int]:
    """The values of a SETTINGS frame, the last of each. Raises ConnectionFault."""
    if len(payload) % _setting.size:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS that are cut off")
    found: dict[int, int] = {}
    for name, value in _setting.iter_unpack(payload):
        if name == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if name == Setting.INITIAL_WINDOW_SIZE and value > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a first window over 2^31-1")
        if name == Setting.MAX_FRAME_SIZE and not MAX_FRAME_SIZE <= value < 2**24:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a greatest frame of {value} bytes")
        found[name] = value
    return found


def without_padding(each: Frame) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding. Raises ConnectionFault."""
    payload = each.payload
    if not each.flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]
