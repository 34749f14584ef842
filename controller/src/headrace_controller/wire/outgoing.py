"""What a connection has to send: control frames at once, messages as the peer's windows allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import hpack

from headrace_controller.wire.frames import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    frame,
)
from headrace_controller.wire.remembered import Remembered
from headrace_controller.wire.windows import Outbound


class Outgoing:
    """Frames in the order in which they go out. `on_output` hears that there are some again.

    While `writable` is False the peer does not read, and messages wait in their calls.
    """

    def __init__(self, on_output: Callable[[], None]) -> None:
        self._on_output = on_output
        self._parts: list[bytes] = []
        self._encoder = hpack.Encoder()
        self._remembered = Remembered[tuple[tuple[str, str], ...], bytes](self._encoder.header_table)
        self.window = Outbound()
        self.writable = True

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
        self._encoder.header_table_size = min(size, 4096)
        self._remembered = Remembered(self._encoder.header_table)
