"""The open-loop driver: one task a request, streaming, TTFT per request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from headrace_lab.load.arrivals import Arrival
from headrace_lab.load.prompts import prompt
from headrace_lab.load.records import Record
from headrace_shared.clock import Clock

REFUSED = "not sent: too many requests in flight"
CELL_HEADER = "x-headrace-cell"
UPSTREAM_HEADER = "x-headrace-upstream"


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go; `cells` maps a serving endpoint's host:port to its cell."""

    url: str
    model: str
    cells: Mapping[str, str] = field(default_factory=dict)

    def cell_of(self, headers: Mapping[str, str]) -> str:
        """The cell that answered, "" where the headers do not tell."""
        upstream = headers.get(UPSTREAM_HEADER, "")
        return headers.get(CELL_HEADER) or self.cells.get(upstream, "")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the driver: requests in flight at once, seconds for one, seconds to finish at the end."""

    in_flight: int = 512
    request_s: float = 30.0
    drain_s: float = 30.0


@dataclass(slots=True)
class _Answer:
    status: int = 0
    cell: str = ""
    first_at: float | None = None
    done_at: float | None = None
    error: str = ""


class Driver:
    """Sends arrivals to a target; `records` grows as requests end."""

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
        text = prompt(arrival.prompt_tokens, self._seed * 1_000_003 + arrival.id)
        sent, answer = self._clock.now(), _Answer()
        try:
            async with asyncio.timeout(self._limits.request_s):
                await self._exchange(session, arrival, text, answer)
        except TimeoutError:
            answer.error = f"time-out after {self._limits.request_s:g} s"
        except asyncio.CancelledError:
            answer.error = "cut at the end of the run"
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            answer.error = f"{type(error).__name__}: {error}"[:300]
        finally:
            self._note(arrival, sent, len(text), answer)

    async def _exchange(
        self, session: aiohttp.ClientSession, arrival: Arrival, text: str, answer: _Answer
    ) -> None:
        body = {"model": self._target.model, "prompt": text, "max_tokens": arrival.max_tokens, "stream": True}
        async with session.post(f"{self._target.url}/v1/completions", json=body) as response:
            answer.status = response.status
            answer.cell = self._target.cell_of(response.headers)
            if response.status != 200:
                answer.error = error_text(await response.content.read(4096))
                return
            async for line in response.content:
                self._take(line, answer)
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
        chunk: Any = json.loads(data)
        if not isinstance(chunk, dict):
            raise ValueError("a chunk of the stream is no JSON object")
        if "error" in chunk:
            answer.error = error_text(data)
        elif answer.first_at is None and chunk.get("choices"):
            answer.first_at = self._clock.now()

    def _note(self, arrival: Arrival, sent: float, prompt_bytes: int, answer: _Answer) -> None:
        start = self.started_at or sent
        ended = self._clock.now() if answer.done_at is None else answer.done_at
        self.records.append(
            Record(
                id=arrival.id,
                sent_s=sent - start,
                late_ms=(sent - start - arrival.at_s) * 1e3,
                kind=arrival.kind,
                model=self._target.model,
                prompt_tokens=arrival.prompt_tokens,
                prompt_bytes=prompt_bytes,
                max_tokens=arrival.max_tokens,
                status=answer.status,
                cell=answer.cell,
                ttft_ms=None if answer.first_at is None else (answer.first_at - sent) * 1e3,
                e2e_ms=(ended - sent) * 1e3,
                done=answer.done_at is not None,
                error=answer.error,
            )
        )


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
