"""One connection to an engine: a question out, its answer in, one at a time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from headrace_agent.collectors.app.http import trust
from headrace_agent.collectors.app.http.answer import Answer, AnswerParser
from headrace_agent.collectors.app.http.errors import BrokenError, CallError

Heard = Callable[["Answer | CallError"], None]

# Where the event loop puts what it receives, for one connection at a time: what is there is read
# before it goes on to the next. Most pages fit in; memory of that size asked for at each read would
# be got from the system and given back each time.
_RECEIVED: Final = memoryview(bytearray(256 * 1024))


class Connection(asyncio.BufferedProtocol):
    """`open` while it can be asked; `used` once it has carried an answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: AnswerParser | None = None
        self._heard: Heard | None = None
        self._held: asyncio.TimerHandle | None = None
        self.used = False

    @property
    def open(self) -> bool:
        """Whether a question may be asked on it."""
        return self._transport is not None and self._heard is None

    def ask(self, request: bytes, limit: int, heard: Heard, hold_s: float = 0.0) -> None:
        """Send a request; `heard` is called once, with the answer or with why there is none.

        It is not called any more once the connection was closed from this side. For `hold_s`
        nothing is received, however soon it comes.
        """
        assert self._transport is not None, "the connection is closed"
        self._parser, self._heard = AnswerParser(limit), heard
        self._transport.write(request)
        if hold_s > 0:
            self._transport.pause_reading()
            self._held = asyncio.get_running_loop().call_later(hold_s, self._release)

    async def exchange(self, request: bytes, limit: int, hold_s: float = 0.0) -> Answer:
        """Ask and wait for the answer. Raises CallError; cancelled, it closes the connection."""
        heard: asyncio.Future[Answer | CallError] = asyncio.get_running_loop().create_future()

        def take(answer: Answer | CallError) -> None:
            if not heard.done():  # it may come in the very turn in which the wait was given up
                heard.set_result(answer)

        try:
            self.ask(request, limit, take, hold_s)
            answer = await heard
        except BaseException:
            self.close()
            raise
        if isinstance(answer, CallError):
            raise answer
        return answer

    def close(self) -> None:
        """End the connection at once."""
        transport, self._transport = self._transport, None
        self._heard = self._parser = None
        self._end_hold()
        if transport is not None:
            transport.abort()

    def _release(self) -> None:
        self._held = None
        if self._transport is not None:
            self._transport.resume_reading()

    def _end_hold(self) -> None:
        if self._held is not None:
            self._held.cancel()
            self._held = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return _RECEIVED

    def buffer_updated(self, nbytes: int) -> None:
        if self._heard is None or self._parser is None:
            self.close()  # nothing was asked
            return
        try:
            answer = self._parser.feed(_RECEIVED[:nbytes])
        except CallError as error:
            self._hand_on(error, keep=False)
            return
        if answer is not None:
            self.used = True
            self._hand_on(answer, keep=self._parser.reusable)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end_hold()
        if self._heard is None or self._parser is None:
            return
        try:
            if isinstance(exc, ssl.SSLError):
                raise BrokenError(f"the connection ended: {exc}{trust.explain(exc)}")
            self._hand_on(self._parser.end(), keep=False)
        except CallError as error:
            self._hand_on(error, keep=False)

    def _hand_on(self, answer: Answer | CallError, keep: bool) -> None:
        heard, self._heard, self._parser = self._heard, None, None
        if not keep:
            self.close()
        if heard is not None:
            heard(answer)
