"""Header blocks: HEADERS and CONTINUATION frames to fields (RFC 9113, section 4.3; RFC 7541)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import hpack

from headrace_controller.wire.frames import (
    END_HEADERS,
    END_STREAM,
    WITH_PRIORITY,
    ConnectionFault,
    ErrorCode,
    Frame,
    without_padding,
)
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.remembered import Remembered

_PRIORITY_SIZE: Final = 5
# Blocks that are remembered: of longer ones thousands of peers could have the server keep gigabytes.
_SHORT: Final = 1024


class Block(NamedTuple):
    """The fields of one whole block, not to be changed; `last`: the peer says nothing more on this stream."""

    stream: int
    last: bool
    fields: list[tuple[str, str]]


@dataclass(slots=True)
class _Open:
    stream: int
    last: bool
    data: bytes


class HeaderBlocks:
    """Puts blocks together and unpacks them. All blocks of a connection must go through it, in order: each
    may refer to those before."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoder = hpack.Decoder(limits.header_list)
        self._remembered = Remembered[bytes, list[tuple[str, str]]](self._decoder.header_table)
        self._open: _Open | None = None

    @property
    def is_open(self) -> bool:
        """Whether a block is under way: nothing but its continuation may come."""
        return self._open is not None

    def begin(self, each: Frame) -> Block | None:
        """Take a HEADERS frame; the block if it is whole. Raises ConnectionFault."""
        payload = without_padding(each)
        if each.flags & WITH_PRIORITY:
            if len(payload) < _PRIORITY_SIZE:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS that are cut off")
            payload = payload[_PRIORITY_SIZE:]
        opened = _Open(each.stream, bool(each.flags & END_STREAM), payload)
        return self._proceed(opened, each)

    def proceed(self, each: Frame) -> Block | None:
        """Take a CONTINUATION frame; the block if it is whole. Raises ConnectionFault."""
        opened = self._open
        if opened is None or opened.stream != each.stream:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        if not each.payload and not each.flags & END_HEADERS:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "an empty CONTINUATION")
        opened.data += each.payload
        return self._proceed(opened, each)

    def _proceed(self, opened: _Open, each: Frame) -> Block | None:
        if len(opened.data) > self._limits.header_block:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many header fields")
        self._open = None if each.flags & END_HEADERS else opened
        return Block(opened.stream, opened.last, self._unpack(opened.data)) if self._open is None else None

    def _unpack(self, data: bytes) -> list[tuple[str, str]]:
        remembered = self._remembered
        if (known := remembered.get(data)) is not None:
            return known
        remembered.begin()
        try:
            fields = self._decoder.decode(data)
        except hpack.OversizedHeaderListError as error:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many header fields") from error
        except Exception as error:
            # Not HPACKError alone: a number of thousands of digits is a ValueError, for one.
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "header fields that cannot be read") from error
        found = [(str(name), str(value)) for name, value in fields]
        if len(data) <= _SHORT and sum(len(name) + len(value) + 32 for name, value in found) <= 4 * _SHORT:
            remembered.keep(data, found)
        else:
            remembered.pass_over()
        return found
