"""gRPC messages in DATA frames: a flag, a length, and the message's own bytes."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

HEAD_SIZE: Final = 5
_head: Final = struct.Struct("!BI")


class Status(IntEnum):
    """What a call ends with."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallFault(Exception):  # noqa: N818 (the peer's, not the program's)
    """The peer sent what ends its call; `details` are for people."""

    def __init__(self, status: Status, details: str) -> None:
        super().__init__(details)
        self.status = status
        self.details = details


class Room:
    """How many bytes of messages that are not whole yet a server holds, of at most `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0


class MessageReader:
    """Puts the messages of one call together. `encoding` is what the call says of compressed ones."""

    def __init__(self, max_size: int, room: Room, encoding: str = "identity") -> None:
        self.max_size = max_size
        self._room = room
        self._encoding = encoding
        self._bytes: bytes | bytearray = b""
        self._at = 0
        self._held = 0

    @property
    def waiting(self) -> int:
        """Bytes that no message was made of yet."""
        return len(self._bytes) - self._at

    def feed(self, data: bytes) -> None:
        """Take more bytes. Raises CallFault where the server has no room for them."""
        if self._at >= len(self._bytes):
            # By far the most messages come whole.
            self._bytes, self._at = data, 0
            return
        if self._at or isinstance(self._bytes, bytes):
            self._bytes, self._at = bytearray(self._bytes[self._at :]), 0
        self._bytes += data
        self._hold(len(self._bytes))

    def next(self) -> bytes | None:
        """The next whole message, None where more bytes are needed. Raises CallFault."""
        data, at = self._bytes, self._at
        if len(data) - at < HEAD_SIZE:
            self._hold(len(data) - at)
            return None
        compressed, size = _head.unpack_from(data, at)
        if compressed:
            raise self._compressed()
        if size > self.max_size:
            raise CallFault(
                Status.RESOURCE_EXHAUSTED, f"Received message larger than max ({size} vs. {self.max_size})"
            )
        at += HEAD_SIZE
        end = at + size
        if end > len(data):
            self._hold(self.waiting)
            return None
        self._at = end
        if end == len(data):
            # A call may be silent for long: nothing of what was read is kept for it.
            self.drop()
        elif self._held:
            self._hold(len(data) - end)
        return bytes(data[at:end])

    def drop(self) -> None:
        """Forget what was not read."""
        self._bytes, self._at = b"", 0
        self._hold(0)

    def _hold(self, size: int) -> None:
        if size == self._held:
            return
        if self._room.used + size - self._held > self._room.size:
            raise CallFault(Status.RESOURCE_EXHAUSTED, "too many large messages at once; send it again later")
        self._room.used += size - self._held
        self._held = size

    def _compressed(self) -> CallFault:
        if self._encoding == "identity":
            return CallFault(Status.INTERNAL, "a compressed message, and grpc-encoding names no way")
        return CallFault(Status.UNIMPLEMENTED, f"grpc-encoding {self._encoding[:32]!r} is not supported")


def packed(message: bytes) -> bytes:
    """A message as it stands in DATA frames."""
    return _head.pack(0, len(message)) + message
