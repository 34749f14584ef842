"""A client of HTTP/2 as bytes, for tests of the telemetry port's wire."""

from __future__ import annotations

from collections.abc import Sequence

import hpack

from headrace_controller.wire import frames
from headrace_controller.wire.call import Call, Peer
from headrace_controller.wire.connection import Connection
from headrace_controller.wire.frames import Frame
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.messages import Room, packed

PATH = "/test.Echo/Stream"
OPENING = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "controller"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)
HELLO = frames.PREFACE + frames.settings({})


def split(data: bytes) -> list[Frame]:
    """The frames in what a server sent."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 3], "big")
        stream = int.from_bytes(data[at + 5 : at + 9], "big")
        found.append(Frame(data[at + 3], data[at + 4], stream, data[at + 9 : at + 9 + size]))
        at += 9 + size
    assert at == len(data), "the last frame is cut off"
    return found


def headers(
    stream: int, fields: Sequence[tuple[str, str]] = OPENING, flags: int = frames.END_HEADERS
) -> bytes:
    """A HEADERS frame whose fields need no table."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return frames.frame(frames.HEADERS, flags, stream, encoder.encode(fields))


def data(stream: int, *messages: bytes, flags: int = 0) -> bytes:
    """A DATA frame with whole messages."""
    return frames.frame(frames.DATA, flags, stream, b"".join(map(packed, messages)))


class Echo:
    """Notes what a call hears, and answers each message with itself."""

    def __init__(self, call: Call, heard: list[tuple[int, str]], echo: bool = True) -> None:
        self.call = call
        self._heard = heard
        self._echo = echo

    def message(self, data: bytes) -> None:
        self._heard.append((self.call.stream, data.decode("latin-1")))
        if self._echo:
            self.call.send(data)

    def half_closed(self) -> None:
        self._heard.append((self.call.stream, "half closed"))

    def closed(self) -> None:
        self._heard.append((self.call.stream, "closed"))


class Bench:
    """A connection without a socket; `heard` is what its calls heard, by stream."""

    def __init__(self, limits: Limits | None = None, room: int = 1 << 20, echo: bool = True) -> None:
        self.heard: list[tuple[int, str]] = []
        self.errors: list[Exception] = []
        self.calls: list[Echo] = []
        self.now = 0.0
        self.room = Room(room)
        self._echo = echo
        self.connection = Connection(
            {PATH: self._open},
            limits or Limits(),
            self.room,
            Peer("10.0.0.9:5000"),
            lambda: None,
            lambda _, error: self.errors.append(error),
            self.now,
        )
        self.connection.begin()
        self._decoder = hpack.Decoder()

    def _open(self, call: Call) -> Echo:
        self.calls.append(Echo(call, self.heard, self._echo))
        return self.calls[-1]

    def say(self, *parts: bytes) -> None:
        """The client says something, and all of it is worked off."""
        for part in parts:
            if not self.connection.receive(part, self.now):
                continue
            while self.connection.turn(self.now):
                pass

    def sent(self) -> list[Frame]:
        """What the server has said since the last call."""
        return split(self.connection.outgoing.take())

    def trailers(self, found: Sequence[Frame]) -> list[tuple[int, dict[str, str]]]:
        """The header fields in the server's frames, by stream, in order."""
        return [
            (each.stream, {str(name): str(value) for name, value in self._decoder.decode(each.payload)})
            for each in found
            if each.kind == frames.HEADERS
        ]

    def goodbye(self) -> int | None:
        """The error code of the server's GOAWAY, None where it said none."""
        codes = [
            int.from_bytes(each.payload[4:8], "big") for each in self.sent() if each.kind == frames.GOAWAY
        ]
        return codes[-1] if codes else None
