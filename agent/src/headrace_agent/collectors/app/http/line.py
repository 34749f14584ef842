"""What a health probe asks over: a connection that is looked at when the time has come.

It does not wake the agent by itself, which is what makes it cheap.
"""

from __future__ import annotations

import asyncio
import socket
from functools import lru_cache
from typing import Final, Protocol

from headrace_agent.collectors.app.http.answer import Answer, AnswerParser
from headrace_agent.collectors.app.http.connection import Connection
from headrace_agent.collectors.app.http.errors import BrokenError, CallError

# Into which what comes is received, for one line at a time: what is there is read before it goes on to
# the next. Most pages fit in; memory of that size asked for at each read would be got from the system
# and given back each time.
_RECEIVED: Final = memoryview(bytearray(256 * 1024))
# Answers to health probes are short, and for a second or so they are all the same.
_SHORT_BYTES: Final = 1024


class Line(Protocol):
    """One connection for one question at a time."""

    @property
    def used(self) -> bool:
        """Whether it has carried an answer."""
        ...

    def ready(self) -> bool:
        """Whether a question may be asked: it has not ended, and nothing has come unasked."""
        ...

    def ask(self, request: bytes, limit: int) -> None:
        """Send a request whose answer may have `limit` bytes of body."""
        ...

    def hear(self) -> Answer | CallError | None:
        """The answer, why there will be none, or None while it is not there."""
        ...

    def close(self) -> None:
        """End the connection at once."""
        ...


class PlainLine:
    """Over a connected socket that is not to block."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._limit = 0
        self._parser: AnswerParser | None = None
        self._waiting = False
        self._trouble: CallError | None = None
        self._used = False

    @property
    def used(self) -> bool:
        return self._used

    def ready(self) -> bool:
        if self._sock.fileno() < 0:
            return False
        try:
            self._sock.recv(1)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # its end, or words (408, say) that would be taken for the next answer

    def ask(self, request: bytes, limit: int) -> None:
        self._limit, self._parser, self._waiting = limit, None, True
        try:
            if self._sock.send(request) != len(request):
                self._trouble = BrokenError("the request could not be sent")
        except OSError:
            return  # hear() will tell how the connection ended

    def hear(self) -> Answer | CallError | None:
        if not self._waiting:
            return None
        found: Answer | CallError | None = self._trouble
        try:
            found = found or self._read()
        except CallError as error:
            found = error
        if found is None:
            return None
        self._waiting = False
        if isinstance(found, Answer):
            self._used = True
        else:
            self.close()
        return found

    async def wait(self) -> None:
        """Until something has come, or the connection has ended."""
        if self._sock.fileno() < 0:
            return
        loop, descriptor = asyncio.get_running_loop(), self._sock.fileno()
        there = asyncio.Event()
        loop.add_reader(descriptor, there.set)
        try:
            await there.wait()
        finally:
            loop.remove_reader(descriptor)

    def close(self) -> None:
        self._sock.close()

    def _read(self) -> Answer | None:
        while True:
            try:
                data = _RECEIVED[: self._sock.recv_into(_RECEIVED)]
            except BlockingIOError:
                return None
            except OSError:
                data = _RECEIVED[:0]
            if self._parser is None and len(data) <= _SHORT_BYTES:
                known = _read_short(bytes(data))
                if known is not None:
                    return known
            if self._parser is None:
                self._parser = AnswerParser(self._limit)
            answer = self._parser.feed(data) if len(data) else self._parser.end()
            if answer is not None:
                reusable, self._parser = self._parser.reusable, None
                if not reusable:
                    self.close()
                return answer


class SecureLine:
    """Over a connection of the event loop, which is where encryption is done."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._heard: Answer | CallError | None = None

    @property
    def used(self) -> bool:
        return self._connection.used

    def ready(self) -> bool:
        return self._connection.open

    def ask(self, request: bytes, limit: int) -> None:
        self._heard = None
        self._connection.ask(request, limit, self._take)

    def hear(self) -> Answer | CallError | None:
        heard, self._heard = self._heard, None
        return heard

    def close(self) -> None:
        self._connection.close()

    def _take(self, heard: Answer | CallError) -> None:
        self._heard = heard


@lru_cache(maxsize=64)
def _read_short(data: bytes) -> Answer | None:
    """An answer that is whole, and after which the connection stays open; None for all else."""
    parser = AnswerParser(_SHORT_BYTES)
    try:
        answer = parser.feed(data) if data else None
    except CallError:
        return None
    return answer if parser.reusable else None
