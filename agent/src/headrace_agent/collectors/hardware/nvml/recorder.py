"""Which NVML call is under way, in memory that outlives the process that makes it.

The agent reads it after a hang or a crash: without it nobody could say which GPU is to blame.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Final

READING: Final = 0
WATCHING: Final = 1
_SLOT_BYTES: Final = 64
_SLOTS: Final = 2


class Recorder:
    """One text of up to 64 bytes for each of the two threads that call NVML; "" = no call."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _SLOT_BYTES * _SLOTS)

    def noter(self, slot: int) -> Callable[[str], None]:
        """What writes into one slot."""
        memory, start = self._memory, slot * _SLOT_BYTES

        def note(text: str) -> None:
            memory[start : start + _SLOT_BYTES] = text.encode("ascii", "replace")[:_SLOT_BYTES].ljust(
                _SLOT_BYTES, b"\0"
            )

        return note

    def read(self, slot: int) -> str:
        """What one slot holds."""
        start = slot * _SLOT_BYTES
        return self._memory[start : start + _SLOT_BYTES].rstrip(b"\0").decode("ascii", "replace")

    def close(self) -> None:
        """Let the memory go."""
        self._memory.close()


def create() -> int:
    """A descriptor of new, empty memory for a Recorder. Raises OSError."""
    fd = os.memfd_create("headrace-nvml", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, _SLOT_BYTES * _SLOTS)
    except OSError:
        os.close(fd)
        raise
    return fd


def blame(text: str) -> tuple[int | None, str]:
    """A slot's text as (index of the GPU, function); None where the call was for no single GPU."""
    index, _, function = text.partition(" ")
    return (int(index) if index.isdigit() else None), function


def words(text: str) -> str:
    """A slot's text for people; "" where no call was under way."""
    index, function = blame(text)
    return function if index is None else f"{function} of GPU {index}"
