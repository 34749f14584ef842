"""An exporter's HTTP/1.1 answer, from the bytes that come. No sockets.

httptools reads the protocol; here stand the bounds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import httptools

MAX_HEADERS: Final = 100
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_CHUNKS: Final = 65_536
# What a chunk may take beside its data: its size, an extension, two line ends.
_CHUNK_EXTRA: Final = 64


class ReplyError(Exception):
    """What came is no HTTP answer, or one that is made to keep its reader busy."""


class EndedError(Exception):
    """The connection ended before the answer did; `begun`: within its body, not before it."""

    def __init__(self, words: str, begun: bool) -> None:
        super().__init__(words)
        self.begun = begun


class Reply:
    """One answer. `status` is 0 until its headers are whole; `reusable` says, once all of it is
    `whole`, that the connection may carry another."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.whole = False
        self.reusable = False
        self._http: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._pieces: deque[bytes] = deque()
        self._measured = False
        self._chunks = 0
        self._beside = 0
        self._trouble = ""

    def feed(self, data: bytes) -> None:
        """Take in what came; b"" is the end of the connection. Raises ReplyError and EndedError."""
        if not data:
            self._end()
            return
        try:
            self._read(data)
        finally:
            if self.whole or self._trouble:
                self._http = None  # it and this object hold each other

    def take(self) -> bytes | None:
        """The next piece of the body that has come, None while there is none."""
        return self._pieces.popleft() if self._pieces else None

    def _read(self, data: bytes) -> None:
        if self._http is None:
            raise ReplyError("the answer is over")
        try:
            self._http.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.whole:
                self._trouble = self._trouble or "not an HTTP answer"
                raise ReplyError(self._trouble) from error
            self.reusable = False
        if self._trouble:
            raise ReplyError(self._trouble)
        self._beside += len(data)
        if not self.whole and self._beside > MAX_HEAD_BYTES + _CHUNK_EXTRA * self._chunks:
            self._trouble = "its headers have no end"
            raise ReplyError(self._trouble)

    def _end(self) -> None:
        self._http = None
        if not self.status or self._measured:
            raise EndedError("the connection ended within the answer", begun=self.status > 0)
        self.whole, self.reusable = True, False

    # What httptools calls while it reads.

    def on_message_begin(self) -> None:
        if self.whole:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.whole:
            return
        if len(self.headers) >= MAX_HEADERS:
            self._trouble = "it has too many headers"
            return
        key = name.decode("latin-1")
        self.headers.append((key, value.decode("latin-1")))
        self._measured = self._measured or key.lower() in ("content-length", "transfer-encoding")

    def on_headers_complete(self) -> None:
        if self.whole or self._http is None:
            return
        status = self._http.get_status_code()
        if status >= 200:
            self.status, self.reusable = status, self._http.should_keep_alive()
        else:  # an interim answer comes before the one that was asked for
            self.headers.clear()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            self._trouble = "it comes in too many pieces"

    def on_body(self, body: bytes) -> None:
        if not self.whole and not self._trouble:
            self._pieces.append(body)
            self._beside -= len(body)

    def on_message_complete(self) -> None:
        self.whole = self.whole or self.status > 0
