"""Where `top` gets what it shows, and tells what it is asked: the controller's API, in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from headrace_controller.operator_cli.client import (
    CELLS,
    Client,
    Code,
    Gone,
    Refused,
    cell_path,
    gathered,
    misunderstood,
)
from headrace_controller.operator_cli.terminal import clean
from headrace_controller.operator_cli.top.rows import Look, look
from headrace_shared.clock import Clock

Answer = TypeVar("Answer")
SLOW: Final = 3
"""A region that takes long to read is read less often: between two looks pass this many times as long."""


class SourceError(Exception):
    """What was asked for did not come; the message says why, for people, and `code` how to exit."""

    def __init__(self, message: str, code: Code = Code.UNREACHABLE) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Story:
    """One cell, and why it has its weights: the answers of the API."""

    detail: dict[str, Any]
    explanations: list[dict[str, Any]]


class Source(Protocol):
    """A controller. Every method may take as long as its time-out, and raises SourceError."""

    @property
    def url(self) -> str: ...

    def look(self) -> Look:
        """The region now."""
        ...

    def story(self, cell: str) -> Story:
        """One cell now."""
        ...

    def drain(self, cell: str, cause: str) -> str:
        """Ask for a drain; the cell's state."""
        ...

    def undrain(self, cell: str, cause: str) -> str:
        """Take a drain back; the cell's state."""
        ...


class ApiSource:
    """Implements Source by a Client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def url(self) -> str:
        return self._client.url

    def look(self) -> Look:
        def read() -> Look:
            status = self._client.ask("/api/v1/status")
            page = gathered(lambda query: self._client.ask(CELLS, query=query), {})
            return look(status, page["cells"])

        return self._asked(read)

    def story(self, cell: str) -> Story:
        def read() -> Story:
            detail = self._client.ask(cell_path(cell))
            found = self._client.ask(cell_path(cell, "explain"))
            return Story(detail, found["explanations"])

        return self._asked(read)

    def drain(self, cell: str, cause: str) -> str:
        return self._act(cell, "drain", cause)

    def undrain(self, cell: str, cause: str) -> str:
        return self._act(cell, "undrain", cause)

    def _act(self, cell: str, what: str, cause: str) -> str:
        def act() -> str:
            told = self._client.ask(cell_path(cell, what), method="POST", body={"cause": cause})
            return str(told["state"]) or "not known yet"

        return self._asked(act)

    def _asked(self, read: Callable[[], Answer]) -> Answer:
        try:
            return read()
        except Gone as error:
            raise SourceError(str(error)) from error
        except Refused as error:
            raise SourceError(str(error), error.code) from error
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise SourceError(misunderstood(self._client.url, error)) from error


class Feed:
    """Looks at the region again and again in a thread of its own, until it is stopped.

    `told` hears each look, or why there is none; it is called in the thread.
    """

    def __init__(
        self, source: Source, interval_s: float, clock: Clock, told: Callable[[Look | SourceError], None]
    ) -> None:
        self._source, self._interval_s, self._clock, self._told = source, interval_s, clock, told
        self._end = threading.Event()
        self._now = threading.Event()

    def start(self) -> None:
        """Begin. The thread holds up no end of the program: it may wait for a controller that hangs."""
        threading.Thread(target=self._run, name="top: looks", daemon=True).start()

    def hurry(self) -> None:
        """Look again without waiting for the interval to pass."""
        self._now.set()

    def stop(self) -> None:
        """End after the look that is under way."""
        self._end.set()
        self._now.set()

    def _run(self) -> None:
        while not self._end.is_set():
            began = self._clock.now()
            try:
                found: Look | SourceError = self._source.look()
            except SourceError as error:
                found = error
            if self._end.is_set():
                return
            self._told(found)
            self._now.wait(max(self._interval_s, SLOW * (self._clock.now() - began)))
            self._now.clear()


def in_thread(name: str, work: Callable[[], None]) -> None:
    """Do something that may take long, aside."""
    threading.Thread(target=work, name=f"top: {name}", daemon=True).start()


def acted(act: Callable[[str, str], str], cell: str, cause: str, word: str) -> str:
    """Do it; what to say of it."""
    try:
        return clean(f"{cell}: {act(cell, cause)}")
    except SourceError as error:
        return clean(f"{word.lower()} {cell} failed: {error}")
