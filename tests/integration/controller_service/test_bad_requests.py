"""Requests to the admin port that are wrong in ways of their own: answered in words, and nothing changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.integration.controller_service.node import beating, speaking
from tests.integration.controller_service.running import Running, serving, settings_of, strict, until

DRAIN = "/api/v1/cells/c1/drain"


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """A controller with one READY cell, c1."""
    async with serving(settings_of()) as started, speaking(started.telemetry) as node:
        await node.serve()
        async with beating(node):
            await until(started.serving_c1)
            yield started


async def ask(running: Running, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    """Status, and the error that the JSON of the answer names."""
    headers = {"Content-Type": "application/json; charset=no-such"}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
        session.request(method, running.admin + path, data=body, headers=headers) as answer,
    ):
        return answer.status, strict(await answer.text())["error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        (DRAIN, b'{"cause": "\xff"}', 400, "not JSON"),
        (DRAIN, b"[" * 60_000, 400, "not JSON"),
        (DRAIN, b'{"deadline_s": ' + b"9" * 5000 + b"}", 400, "not JSON"),
        (DRAIN, b'{"deadline_s": Infinity}', 400, "deadline_s"),
        (DRAIN, b'{"cause": "' + b"x" * 501 + b'"}', 400, "at most 500"),
        (DRAIN, b" " * 70_000, 413, ""),
        ("/api/v1/cells/c1/undrain", b'{"cause": "' + b"x" * 501 + b'"}', 400, "at most 500"),
        ("/api/v1/cells/c1/undrain", None, 409, "c1"),
        ("/api/v1/cells/" + "c" * 3000 + "/drain", None, 404, "there is no cell"),
    ],
    ids=["bytes", "deep", "digits", "infinity", "cause", "size", "undrain cause", "not drained", "id"],
)
async def test_a_wish_that_cannot_be_taken(
    running: Running, path: str, body: bytes | None, status: int, said: str
) -> None:
    found, error = await ask(running, "POST", path, body)
    assert (found, said in error) == (status, True), error
    assert (await running.cells())["c1"]["state"] == "READY"


async def test_a_limit_of_five_thousand_digits(running: Running) -> None:
    status, error = await ask(running, "GET", f"/api/v1/events?limit={'9' * 5000}")
    assert (status, "from 1 to 1000" in error) == (400, True)


async def test_a_page_that_fails_is_logged_and_still_json(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong in a view is the controller's own fault: said so, with the traceback in the log."""
    views = running.controller.desk.views
    view = views.fleet()

    def planted(*_: object) -> object:
        raise RuntimeError("planted")

    monkeypatch.setattr(views, "matching", planted)
    with capture_logs() as logs:
        status, error = await ask(running, "GET", "/api/v1/cells")
    assert (status, "its log says why" in error) == (500, True)
    (line,) = [each for each in logs if each["event"] == "a request failed"]
    assert line["error"] == "RuntimeError('planted')"
    monkeypatch.undo()
    assert view.cells[0].id in await running.cells()
