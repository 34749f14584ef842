"""What one peer may ask of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CALL_OVERHEAD: Final = 2
"""What opening a call counts among the frames that carry no message."""
CALL_WORK: Final = 16
"""What opening a call counts in a turn: its header fields are unpacked by pure Python."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds.

    `message`: one gRPC message; `unfinished`: messages that are not whole yet, of all connections together.
    `header_list`: a request's fields as HTTP/2 counts them; `header_block`: their compressed form.
    `connections` at once, and of these `handshakes` that have not agreed on TLS; `streams` of a connection.
    `turn`: units of work before other connections have their turn; a frame is one, and a message one and
    one more for each 256 bytes.
    `overhead`: frames that carry no message, at once; so many come again each second as `overhead_rate`.
    `unread`: answers, acknowledgements and the like that wait for a peer that does not read, and as much
    again that waits in its calls for credit.
    `handshake_s`: from accepting to the peer's SETTINGS; `idle_s`: a connection without a call.
    `ping_after_s` of silence the peer is asked for a sign of life, which must come within `ping_timeout_s`.
    """

    message: int = 4 * 1024 * 1024
    unfinished: int = 256 * 1024 * 1024
    header_list: int = 16 * 1024
    header_block: int = 8 * 1024
    connections: int = 8192
    handshakes: int = 512
    streams: int = 100
    turn: int = 64
    overhead: int = 10_000
    overhead_rate: float = 2000.0
    unread: int = 1024 * 1024
    handshake_s: float = 10.0
    idle_s: float = 300.0
    ping_after_s: float = 5.0
    ping_timeout_s: float = 5.0


FOR_GATEWAYS: Final = Limits(
    # Endpoints of thousands of cells, and 32,768 requests that wait for their first token with all that the
    # gateway's own streams need.
    connections=1024,
    streams=40_000,
    unread=64 * 1024 * 1024,
    overhead=400_000,
    overhead_rate=100_000.0,
)
"""For Envoys: few connections, with a call for each request of theirs."""


class Allowance:
    """How many more frames without a message a peer may send: `size` at once, `rate` a second anew."""

    def __init__(self, size: int, rate: float, now: float) -> None:
        self._size = float(size)
        self._rate = rate
        self._left = self._size
        self._at = now

    def spend(self, count: int, now: float) -> bool:
        """Take `count` of it; False where so much is not left."""
        self._left = min(self._size, self._left + (now - self._at) * self._rate) - count
        self._at = now
        return self._left >= 0
