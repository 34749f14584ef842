"""What a connection has to send: control frames at once, messages as the peer's windows allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import hpack

from headrace_controller.wire.frames import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    frame,
)
from headrace_controller.wire.remembered import Remembered
from headrace_controller.wire.windows import Outbound

DEFAULT_MOST: Final = 1024 * 1024


class Outgoing:
    """Frames in the order in which they go out. `on_output` hears that there are some again.

    While `writable` is False the peer does not read, and messages wait in their calls: `waiting` bytes in
    all. Once they are more than `most` no other one may be added.
    """

    def __init__(self, on_output: Callable[[], None], most: int = DEFAULT_MOST) -> None:
        self._on_output = on_output
        self._parts: list[bytes] = []
        self._encoder = hpack.Encoder()
        self._remembered = Remembered[tuple[tuple[str, str], ...], bytes](self._encoder.header_table)
        self.window = Outbound()
        self.writable = True
        self.waiting = 0
        self._most = most

    @property
    def is_full(self) -> bool:
        """Whether more waits than may."""
        return self.waiting > self._most

    def put(self, data: bytes) -> None:
        """Send frames."""
        self._parts.append(data)
        if len(self._parts) == 1:
            self._on_output()

    def headers(self, stream: int, fields: Sequence[tuple[str, str]], last: bool) -> None:
        """Send header fields; they are few enough for one frame."""
        flags = END_HEADERS | END_STREAM if last else END_HEADERS
        self.put(frame(HEADERS, flags, stream, self._packed(tuple(fields))))

    def _packed(self, fields: tuple[tuple[str, str], ...]) -> bytes:
        remembered = self._remembered
        if (known := remembered.get(fields)) is not None:
            return known
        remembered.begin()
        block = self._encoder.encode(fields)
        remembered.keep(fields, block)
        return block

    def take(self) -> bytes:
        """All that is to be written, once."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def limit_table(self, size: int) -> None:
        """The peer keeps at most so many bytes of header fields for reference."""
        size = min(size, 4096)
        # Told the same again, the encoder would forget that it has to announce the change.
        if size != self._encoder.header_table_size:
            self._encoder.header_table_size = size
            self._remembered = Remembered(self._encoder.header_table)
