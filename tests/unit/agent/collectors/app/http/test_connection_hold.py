"""Answers that are held back until all engines' pages are taken in together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from unittest.mock import create_autospec

import pytest

from headrace_agent.collectors.app.http.connection import Connection
from headrace_agent.collectors.app.http.errors import CallError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
QUESTION = b"GET / HTTP/1.1\r\n\r\n"
HOLD_S = 0.08


class Timers:
    """The event loop's timers, fired by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self._call_later)

    def _call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        entry = (delay, callback)
        self.set.append(entry)
        handle: asyncio.TimerHandle = create_autospec(asyncio.TimerHandle, instance=True)
        handle.cancel.side_effect = lambda: self.set.remove(entry)  # type: ignore[attr-defined]
        return handle

    def fire(self) -> None:
        _, callback = self.set.pop()
        callback()


def connected() -> tuple[Connection, asyncio.Transport]:
    connection, transport = Connection(), create_autospec(asyncio.Transport, instance=True)
    connection.connection_made(transport)
    return connection, transport


def asked(connection: Connection, hold_s: float) -> list[object]:
    heard: list[object] = []
    connection.ask(QUESTION, 100, heard.append, hold_s)
    return heard


async def test_nothing_is_received_while_held_and_everything_after(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, (connection, transport) = Timers(monkeypatch), connected()
    heard = asked(connection, HOLD_S)
    transport.write.assert_called_once_with(QUESTION)  # type: ignore[attr-defined]
    transport.pause_reading.assert_called_once_with()  # type: ignore[attr-defined]
    assert [delay for delay, _ in timers.set] == [HOLD_S]
    transport.resume_reading.assert_not_called()  # type: ignore[attr-defined]
    timers.fire()
    transport.resume_reading.assert_called_once_with()  # type: ignore[attr-defined]
    connection.get_buffer(len(ANSWER))[: len(ANSWER)] = ANSWER
    connection.buffer_updated(len(ANSWER))
    assert len(heard) == 1


async def test_without_a_hold_the_connection_is_never_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, (connection, transport) = Timers(monkeypatch), connected()
    asked(connection, 0.0)
    transport.pause_reading.assert_not_called()  # type: ignore[attr-defined]
    assert timers.set == []


@pytest.mark.parametrize("end", ["closed", "lost"])
async def test_a_hold_ends_with_its_connection(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    timers, (connection, transport) = Timers(monkeypatch), connected()
    heard = asked(connection, HOLD_S)
    if end == "closed":
        connection.close()
        assert heard == []
    else:
        connection.connection_lost(ConnectionResetError())
        assert len(heard) == 1
        assert isinstance(heard[0], CallError)
    assert timers.set == []
    transport.resume_reading.assert_not_called()  # type: ignore[attr-defined]
