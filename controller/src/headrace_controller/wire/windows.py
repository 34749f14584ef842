"""HTTP/2 flow control (RFC 9113, section 5.2): how much may be sent, and what to give back."""

from __future__ import annotations

from headrace_controller.wire.frames import DEFAULT_WINDOW, MAX_FRAME_SIZE, MAX_WINDOW


class Inbound:
    """What a peer may still send: `size` bytes that were not given back.

    What arrives is worked off at once, so credit goes back as soon as half of the window is used.
    """

    def __init__(self, size: int = DEFAULT_WINDOW) -> None:
        self._size = size
        self._used = 0

    def has(self, size: int) -> bool:
        """Whether so much more is allowed."""
        return self._used + size <= self._size

    def take(self, size: int) -> bool:
        """Note what came; False where it is more than was allowed."""
        self._used += size
        return self._used <= self._size

    def due(self) -> int:
        """The credit to give now, 0 for none yet."""
        if self._used * 2 < self._size:
            return 0
        used, self._used = self._used, 0
        return used


class Outbound:
    """What may be sent to a peer; negative after it made its first window smaller.

    A message is begun where the window takes all of it, or so much of it that waiting may be in vain: what
    was begun must be finished before a call can end in order.
    """

    def __init__(self, size: int = DEFAULT_WINDOW) -> None:
        self.left = size
        self._usual = size

    def grow(self, size: int) -> bool:
        """Take credit; False where the window grows beyond what HTTP/2 allows."""
        self.left += size
        return self.left <= MAX_WINDOW

    def resize(self, change: int) -> bool:
        """The peer's first window differs by `change` from now on; False as for `grow`."""
        self._usual += change
        return self.grow(change)

    def may_begin(self, size: int) -> bool:
        """Whether to begin a message of `size` bytes now. Peers may keep credit back for up to half of the
        window."""
        return self.left >= min(size, MAX_FRAME_SIZE, self._usual // 2)
