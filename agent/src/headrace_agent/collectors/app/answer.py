"""One HTTP/1.1 answer, from the bytes that come to a status and a body. No sockets.

What the other side writes is bounded in every direction: headers, body, and the pieces a body
comes in. A compressed body is refused unread: it may unfold to anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace_agent.collectors.app.errors import AnswerError, BrokenError, ClosedError
from headrace_agent.collectors.exposition import oversize

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_CHUNKS: Final = 65_536
_MAX_CHUNK_LINE: Final = 256

_START: Final = b"HTTP/1."
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: |\r|$)")
_HEEDED: Final = re.compile(
    rb"\r\n(content-length|transfer-encoding|content-encoding|connection)[ \t]*:[ \t]*([^\r\n]*)",
    re.IGNORECASE,
)
_CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine answered."""

    status: int
    body: bytes


class AnswerParser:
    """Takes in one answer whose body may have `limit` bytes.

    `reusable` says, once the answer is whole, that the connection may carry another. `feed` and
    `end` raise BrokenError for what is no HTTP and AnswerError for an answer that is not taken.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._raw = bytearray()
        self._scanned = 0
        self._head_bytes = 0
        self._status = 0
        self._length: int | None = None
        self._chunks: Iterator[None] | None = None
        self._body = bytearray()
        self._whole = False
        self.reusable = False

    def feed(self, data: bytes) -> Answer | None:
        """Take in what came; the answer, once it is whole."""
        self._raw += data
        if not self._status and not self._take_head():
            return None
        if self._chunks is not None:
            next(self._chunks, None)
            if not self._whole:
                return None
        elif self._length is None:
            self._check(len(self._raw))
            return None
        else:
            if len(self._raw) < self._length:
                return None
            self._body = self._raw[: self._length]
            del self._raw[: self._length]
        if self._raw:
            self.reusable = False  # what came after the answer was not asked for
        return Answer(self._status, bytes(self._body))

    def end(self) -> Answer:
        """The connection has ended: the answer, where its end says that it is whole."""
        if not self._status:
            if not self._raw and not self._head_bytes:
                raise ClosedError("the connection was closed without an answer")
            raise BrokenError("the answer was cut short")
        if self._chunks is not None or self._length is not None:
            raise BrokenError("the answer was cut short")
        return Answer(self._status, bytes(self._raw))

    def _take_head(self) -> bool:
        """Read the headers, and pass over interim answers; False while they are not whole."""
        while True:
            if not self._raw.startswith(_START[: len(self._raw)]):
                raise BrokenError("not an HTTP answer")
            end = self._raw.find(b"\r\n\r\n", max(0, self._scanned - 3))
            self._scanned = len(self._raw)
            if self._head_bytes + (end if end >= 0 else len(self._raw)) > MAX_HEAD_BYTES:
                raise BrokenError(f"not an HTTP answer: its headers exceed {MAX_HEAD_BYTES // 1024} KiB")
            if end < 0:
                return False
            head = bytes(self._raw[:end])
            del self._raw[: end + 4]
            self._scanned = 0
            self._head_bytes += end + 4
            found = _STATUS.match(head)
            if found is None or found[2] == b"101":
                raise BrokenError("not an HTTP answer")
            if not found[2].startswith(b"1"):
                self._status = int(found[2])
                self._heed(head, persistent=found[1] == b"1")
                return True

    def _heed(self, head: bytes, persistent: bool) -> None:
        headers: dict[bytes, set[bytes]] = {}
        for name, value in _HEEDED.findall(head):
            headers.setdefault(name.lower(), set()).add(value.strip().lower())
        encodings = headers.get(b"content-encoding", set()) - {b"identity", b""}
        if encodings:
            named = b", ".join(sorted(encodings))[:64].decode("ascii", "replace")
            raise AnswerError(f"the answer is compressed ({named}), which was not asked for; it was not read")
        lengths, transfers = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        connection = b",".join(headers.get(b"connection", ()))
        self.reusable = b"keep-alive" in connection if not persistent else b"close" not in connection
        if self._status in (204, 304):
            self._length = 0
        elif transfers is not None:
            if transfers != {b"chunked"} or lengths is not None:
                raise BrokenError("not an HTTP answer: the length of its body is not clear")
            self._chunks = self._take_chunks()
        elif lengths is not None:
            self._length = _read_length(lengths)
            self._check(self._length)
        else:
            self.reusable = False  # its end is the connection's

    def _check(self, length: int) -> None:
        if length > self._limit:
            raise AnswerError(oversize(self._limit))

    def _take_chunks(self) -> Iterator[None]:
        """Join a body that comes in pieces; yields whenever more is needed."""
        for _ in range(MAX_CHUNKS):
            while (end := self._raw.find(b"\r\n")) < 0:
                if len(self._raw) > _MAX_CHUNK_LINE:
                    raise BrokenError("not an HTTP answer: its body comes in no pieces")
                yield
            size = _read_chunk_size(bytes(self._raw[:end]))
            self._check(len(self._body) + size)
            if size == 0:
                yield from self._take_trailer(end)
                return
            while len(self._raw) < end + 2 + size + 2:
                yield
            if self._raw[end + 2 + size : end + 4 + size] != b"\r\n":
                raise BrokenError("not an HTTP answer: a piece of its body has no end")
            self._body += self._raw[end + 2 : end + 2 + size]
            del self._raw[: end + 4 + size]
        raise AnswerError(f"the answer comes in more than {MAX_CHUNKS} pieces; it was not read to its end")

    def _take_trailer(self, end: int) -> Iterator[None]:
        """What may stand after the last piece, up to an empty line; `end` is where that piece ends."""
        while (stop := self._raw.find(b"\r\n\r\n", end)) < 0:
            if len(self._raw) > MAX_HEAD_BYTES:
                raise BrokenError("not an HTTP answer: it does not end")
            yield
        del self._raw[: stop + 4]
        self._whole = True


def _read_length(values: set[bytes]) -> int:
    if len(values) == 1:
        (value,) = values
        if value.isdigit() and len(value) < 20:
            return int(value)
    raise BrokenError("not an HTTP answer: the length of its body is not clear")


def _read_chunk_size(line: bytes) -> int:
    found = _CHUNK.fullmatch(line)
    if found is None:
        raise BrokenError("not an HTTP answer: its body comes in no pieces")
    return int(found[1], 16)
