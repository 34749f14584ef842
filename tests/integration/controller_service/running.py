"""A whole controller in the test's own event loop, on real ports of loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import pytest

from headrace_controller import service
from headrace_controller.settings import ControllerSettings
from headrace_shared import config
from headrace_shared.clock import Clock
from tests.integration.controller_cli.program import free_ports

STOP_LIMIT_S = 20.0
SETTINGS = """\
region: berlin
listen: {{telemetry: "127.0.0.1:{telemetry}", xds: "127.0.0.1:{xds}", admin: "127.0.0.1:{admin}"{tls}}}
gateways: [{{id: gw-1, host: 127.0.0.1}}]
lifecycle: {{barrier_s: {barrier}, ramp_s: 0, ttl_s: 10}}
"""
"""The time-out is far longer than a test: on a busy machine beats come late, and silence is not the point."""


class Running:
    """A controller, its ports, and its admin pages."""

    def __init__(
        self,
        settings: ControllerSettings,
        session: aiohttp.ClientSession,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.settings = settings
        self.telemetry = settings.listen.telemetry.port
        self.xds = settings.listen.xds.port
        self.admin = f"{'http' if tls is None else 'https'}://{settings.listen.admin}"
        self.controller: service.Controller
        self._session = session

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text of an admin page."""
        async with self._session.get(self.admin + path) as answer:
            return answer.status, await answer.text()

    async def cells(self) -> dict[str, dict[str, Any]]:
        """The API's cells by id."""
        _, text = await self.get("/api/v1/cells")
        return {cell["id"]: cell for cell in strict(text)["cells"]}

    async def serves(self, task: asyncio.Task[None]) -> bool:
        """Whether the pages are there yet; raises what ended the controller instead."""
        if task.done():
            task.result()
        try:
            return (await self.get("/healthz"))[0] == 200
        except aiohttp.ClientConnectionError:
            return False

    async def ready(self) -> bool:
        """Whether weights are published; perhaps without a cell that has only said Hello."""
        return (await self.get("/readyz"))[0] == 200

    async def serving_c1(self) -> bool:
        """Whether the cell c1 is READY and has its weight."""
        cell = (await self.cells()).get("c1")
        return cell is not None and cell["state"] == "READY" and any(cell["weights"].values())


def strict(text: str) -> Any:
    """JSON as the standard has it: without NaN and infinity."""

    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 25.0) -> None:
    """Wait for `condition()`; TimeoutError if it does not come true."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 (the condition is another program's)
            await asyncio.sleep(0.02)


def settings_of(
    *, tls: str = "", barrier: float = 0.0, state_dir: Path | None = None, more: str = ""
) -> ControllerSettings:
    """Settings on free ports; `tls` is added to `listen`, `more` to the file."""
    text = SETTINGS.format(**free_ports(), barrier=barrier, tls=f", {tls}" if tls else "")
    kept = f"state_dir: {state_dir}\n" if state_dir is not None else ""
    return config.parse(text + kept + more, ControllerSettings)


@asynccontextmanager
async def serving(settings: ControllerSettings, tls: ssl.SSLContext | None = None) -> AsyncIterator[Running]:
    """A controller that serves; it has ended in order, and within the limit, afterwards. Its pages are
    asked with `tls` where they want that."""
    stop = asyncio.Event()
    made: list[service.Controller] = []

    class Noted(service.Controller):
        def __init__(self, settings: ControllerSettings, clock: Clock) -> None:
            super().__init__(settings, clock)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "Controller", Noted)
        task = asyncio.create_task(service.run(settings, stop), name="the controller")
        try:
            connector = aiohttp.TCPConnector(ssl=True if tls is None else tls)
            timeout = aiohttp.ClientTimeout(total=30)
            async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
                running = Running(settings, session, tls)
                await until(lambda: running.serves(task))
                running.controller = made[0]
                yield running
        finally:
            stop.set()
            async with asyncio.timeout(STOP_LIMIT_S):
                await task
