"""Messages between the agent and its NVML process: a JSON object behind its length."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

Message = dict[str, Any]

HEADER: Final = struct.Struct(">I")
# A host of 64 GPUs with 7 instances each stays under a quarter of this.
MAX_BYTES: Final = 1024 * 1024


class WireError(Exception):
    """What came is no message."""


def pack(message: Message) -> bytes:
    """A message with its length before it. Raises ValueError where a figure is no number."""
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return HEADER.pack(len(body)) + body


def size_of(header: bytes) -> int:
    """The length of the message that follows. Raises WireError where it is too large."""
    (size,) = HEADER.unpack(header)
    if size > MAX_BYTES:
        raise WireError(f"a message of {size} bytes")
    return int(size)


def unpack(body: bytes) -> Message:
    """The message in `body`. Raises WireError."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError("a message that is no JSON") from error
    if not isinstance(message, dict):
        raise WireError("a message that is no object")
    return message
