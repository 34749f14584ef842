"""One HTTP/1.1 answer, from the bytes that come to a status and a body. No sockets.

httptools reads the protocol; here stand the bounds: what the other side writes may be made to keep
its reader busy. A compressed body is refused unread: it may unfold to anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import httptools

from headrace_agent.collectors.app.http.errors import AnswerError, BrokenError, CallError, ClosedError
from headrace_agent.collectors.exposition import oversize

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_CHUNKS: Final = 65_536
# What a chunk may take beside its data: its size, an extension, two line ends.
_CHUNK_EXTRA: Final = 64


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
        self._http: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._received = 0
        self._status = 0
        self._measured = False
        self._chunks = 0
        self._body: bytes | bytearray = b""
        self._whole = False
        self._surplus = False
        self._trouble: CallError | None = None
        self.reusable = False

    def feed(self, data: bytes | memoryview) -> Answer | None:
        """Take in what came; the answer, once it is whole. Nothing is taken in after that."""
        self._received += len(data)
        try:
            self._read(data)
        except CallError:
            self._http = None
            raise
        if not self._whole:
            return None
        # It and this object hold each other: pages would pile up until they are collected.
        self._http = None
        self.reusable = self.reusable and not self._surplus
        return Answer(self._status, bytes(self._body))

    def end(self) -> Answer:
        """The connection has ended: the answer, where its end says that it is whole."""
        self._http = None
        if not self._received:
            raise ClosedError("the connection was closed without an answer")
        if not self._status or self._measured:
            raise BrokenError("the answer was cut short")
        return Answer(self._status, bytes(self._body))

    def _read(self, data: bytes | memoryview) -> None:
        assert self._http is not None, "the answer is whole"
        try:
            self._http.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._whole:
                raise self._trouble or BrokenError("not an HTTP answer") from error
            self._surplus = True
        if self._trouble is not None:
            raise self._trouble
        extra = self._received - len(self._body)
        if not self._whole and extra > MAX_HEAD_BYTES + _CHUNK_EXTRA * self._chunks:
            raise BrokenError(f"not an HTTP answer: its headers exceed {MAX_HEAD_BYTES // 1024} KiB")

    def _refuse(self, trouble: CallError) -> None:
        """Keep the first trouble; it is raised when the parser has returned."""
        self._trouble = self._trouble or trouble

    # What httptools calls while it reads.

    def on_message_begin(self) -> None:
        self._surplus = self._surplus or self._whole

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._whole:
            return
        key, text = name.strip().lower(), value.strip().lower()
        if key == b"content-encoding" and text not in (b"", b"identity"):
            named = text[:64].decode("ascii", "replace")
            self._refuse(
                AnswerError(f"the answer is compressed ({named}), which was not asked for; it was not read")
            )
        elif key == b"transfer-encoding":
            self._measured = True
            if text != b"chunked":
                self._refuse(BrokenError("not an HTTP answer: the length of its body is not clear"))
        elif key == b"content-length":
            self._measured = True
            if text.isdigit() and int(text[:20]) > self._limit:
                self._refuse(AnswerError(oversize(self._limit)))

    def on_headers_complete(self) -> None:
        if self._whole or self._http is None:
            return
        status = self._http.get_status_code()
        if status == 101 or status < 100:
            self._refuse(BrokenError("not an HTTP answer"))
        elif status >= 200:
            self._status = status
            self.reusable = self._http.should_keep_alive()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            words = f"the answer comes in more than {MAX_CHUNKS} pieces; it was not read to its end"
            self._refuse(AnswerError(words))

    def on_body(self, body: bytes) -> None:
        if self._whole or self._trouble is not None:
            return
        if len(self._body) + len(body) > self._limit:
            self._refuse(AnswerError(oversize(self._limit)))
            return
        if not self._body:
            self._body = body  # most come in one piece, which need not be copied
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += body

    def on_message_complete(self) -> None:
        # An interim answer (1xx) comes before the one that was asked for.
        self._whole = self._whole or bool(self._status)
