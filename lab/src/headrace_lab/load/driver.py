"""The open-loop driver: one task a request, streaming, TTFT per request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from headrace_lab.load.arrivals import Arrival
from headrace_lab.load.prompts import prefixed
from headrace_lab.load.records import Record
from headrace_shared.clock import Clock

MOST_LINE_BYTES = 65536
REFUSED = "not sent: too many requests in flight"
CELL_HEADER = "x-headrace-cell"
UPSTREAM_HEADER = "x-headrace-upstream"
SESSION_HEADER = "x-session-id"
"""The controller's default for the picker."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go; `cells` maps a serving endpoint's host:port to its cell.

    `bytes_per_token` is the size of prompt text for a token; 0 = one word a token.
    """

    url: str
    model: str
    cells: Mapping[str, str] = field(default_factory=dict)
    bytes_per_token: float = 0.0

    def cell_of(self, headers: Mapping[str, str]) -> str:
        """The cell that answered, "" where the headers do not tell."""
        upstream = headers.get(UPSTREAM_HEADER, "")
        return headers.get(CELL_HEADER) or self.cells.get(upstream, "")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the driver: requests in flight at once, seconds for one, seconds to finish at the end.

    A request that failed is tried again `retry_after_s` later, at most `attempts` times in all and
    within its `request_s`; each attempt has `first_token_s` for its first token (0 = no bound).
    """

    in_flight: int = 512
    request_s: float = 30.0
    drain_s: float = 30.0
    attempts: int = 1
    retry_after_s: float = 0.25
    first_token_s: float = 0.0


@dataclass(slots=True)
class _Answer:
    status: int = 0
    cell: str = ""
    first_at: float | None = None
    done_at: float | None = None
    error: str = ""
    over_at: float | None = None

    @property
    def whole(self) -> bool:
        """True for an answer that came to its end."""
        return self.status == 200 and self.done_at is not None and not self.error


class Driver:
    """Sends arrivals to a target; `records` grows as requests end.

    Latencies count from when a request was due, so a driver or a server that holds others up
    shows in them.
    """

    def __init__(self, target: Target, clock: Clock, limits: Limits | None = None, seed: int = 0) -> None:
        self.records: list[Record] = []
        self.started_at: float | None = None
        self._target = target
        self._clock = clock
        self._limits = limits or Limits()
        self._seed = seed
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet over."""
        return len(self._tasks)

    async def run(self, arrivals: Iterable[Arrival]) -> list[Record]:
        """Send each arrival when it is due; return all records once the last is over.

        Requests that are still open `drain_s` after the last send are cut and recorded so.
        """
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            try:
                self.started_at = self._clock.now()
                for arrival in arrivals:
                    await self._until(self.started_at + arrival.at_s)
                    self._send(session, arrival)
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=self._limits.drain_s)
            finally:
                await self._cut()
        return self.records

    async def _until(self, due: float) -> None:
        wait = due - self._clock.now()
        await asyncio.sleep(max(0.0, wait))

    def _send(self, session: aiohttp.ClientSession, arrival: Arrival) -> None:
        if len(self._tasks) >= self._limits.in_flight:
            self._note(arrival, self._clock.now(), 0, _Answer(error=REFUSED))
            return
        task = asyncio.create_task(self._one(session, arrival), name=f"request {arrival.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cut(self) -> None:
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _one(self, session: aiohttp.ClientSession, arrival: Arrival) -> None:
        text = prefixed(
            arrival.prefix,
            arrival.prefix_block,
            arrival.prompt_tokens,
            self._seed * 1_000_003 + arrival.id,
            self._target.bytes_per_token,
        )
        sent, answers = self._clock.now(), [_Answer()]
        try:
            async with asyncio.timeout(self._limits.request_s):
                await self._until_whole(session, arrival, text, answers)
        except TimeoutError:
            answers[-1].error = f"time-out after {self._limits.request_s:g} s"
        except asyncio.CancelledError:
            answers[-1].error = "cut at the end of the run"
            raise
        finally:
            self._note(arrival, sent, len(text), answers[-1], answers[0], len(answers))

    async def _until_whole(
        self, session: aiohttp.ClientSession, arrival: Arrival, text: str, answers: list[_Answer]
    ) -> None:
        """Try until the answer is whole or the attempts are used up; the last of `answers` counts."""
        while True:
            await self._attempt(session, arrival, text, answers[-1])
            answers[-1].over_at = self._clock.now()
            if answers[-1].whole or len(answers) >= self._limits.attempts:
                return
            await asyncio.sleep(self._limits.retry_after_s)
            answers.append(_Answer())

    async def _attempt(
        self, session: aiohttp.ClientSession, arrival: Arrival, text: str, answer: _Answer
    ) -> None:
        bound = self._limits.first_token_s or None
        try:
            async with asyncio.timeout(bound) as patience:
                await self._exchange(session, arrival, text, answer, patience)
        except TimeoutError:
            if not patience.expired():
                raise
            answer.error = f"no first token after {self._limits.first_token_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            answer.error = f"{type(error).__name__}: {error}"[:300]

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        arrival: Arrival,
        text: str,
        answer: _Answer,
        patience: asyncio.Timeout,
    ) -> None:
        body = {"model": self._target.model, "prompt": text, "max_tokens": arrival.max_tokens, "stream": True}
        url, headers = f"{self._target.url}/v1/completions", session_header(arrival)
        async with session.post(url, json=body, headers=headers) as response:
            answer.status = response.status
            answer.cell = self._target.cell_of(response.headers)
            if response.status != 200:
                answer.error = error_text(await response.content.read(4096))
                return
            async for line in _lines(response.content):
                self._take(line, answer)
                if answer.first_at is not None and patience.when() is not None:
                    patience.reschedule(None)
        if answer.done_at is None and not answer.error:
            answer.error = "the stream ended without [DONE]"

    def _take(self, line: bytes, answer: _Answer) -> None:
        """One line of the event stream."""
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            answer.done_at = self._clock.now()
            return
        if answer.first_at is not None and data[:1] == b"{" and b'"error"' not in data:
            # Only the first tells a time, and parsing each would hold up what is to be sent.
            return
        chunk: Any = json.loads(data)
        if not isinstance(chunk, dict):
            raise ValueError("a chunk of the stream is no JSON object")
        if "error" in chunk:
            answer.error = error_text(data)
        elif answer.first_at is None and chunk.get("choices"):
            answer.first_at = self._clock.now()

    def _note(
        self,
        arrival: Arrival,
        sent: float,
        prompt_bytes: int,
        answer: _Answer,
        first: _Answer | None = None,
        attempts: int = 1,
    ) -> None:
        first = first or answer
        start = self.started_at or sent
        due = start + arrival.at_s
        ended = self._clock.now() if answer.done_at is None else answer.done_at
        first_over = ended if first.over_at is None else first.over_at
        self.records.append(
            Record(
                id=arrival.id,
                sent_s=sent - start,
                late_ms=(sent - due) * 1e3,
                kind=arrival.kind,
                model=self._target.model,
                prompt_tokens=arrival.prompt_tokens,
                prompt_bytes=prompt_bytes,
                max_tokens=arrival.max_tokens,
                status=answer.status,
                cell=answer.cell,
                ttft_ms=None if answer.first_at is None else (answer.first_at - due) * 1e3,
                e2e_ms=(ended - due) * 1e3,
                done=answer.done_at is not None,
                error=answer.error,
                attempts=attempts,
                first_ok=first.whole,
                first_status=first.status,
                first_cell=first.cell,
                first_error=first.error,
                first_over_ms=(first_over - due) * 1e3,
                session=arrival.session,
                turn=arrival.turn,
            )
        )


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, from pieces as they come: the reader itself gives one at a call, and the driver
    must be back in time for the next request. Raises ValueError for a line that does not end."""
    rest = b""
    async for piece in content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > MOST_LINE_BYTES:
            raise ValueError(f"a line of the stream has more than {MOST_LINE_BYTES} bytes")
    if rest:
        yield rest


def session_header(arrival: Arrival) -> dict[str, str]:
    """What a request says of its session, where it has one."""
    return {SESSION_HEADER: f"lab-{arrival.session}"} if arrival.session >= 0 else {}


def error_text(body: bytes) -> str:
    """What an error answer says, from JSON where it is JSON; one line, at most 300 characters."""
    text = body.decode("utf-8", "replace")
    try:
        data: Any = json.loads(text)
        error = data.get("error", data) if isinstance(data, dict) else data
        said = error.get("message", error) if isinstance(error, dict) else error
    except ValueError:
        said = text
    return " ".join(str(said).split())[:300] or "an error without a message"
