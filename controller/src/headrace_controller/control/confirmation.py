"""Asks an engine itself whether it lives, when its agent has fallen silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from headrace_controller.lifecycle import Answer
from headrace_shared.net import HostPort

MAX_AT_ONCE = 64


class EngineInquiry:
    """Sends `GET /health` to engines, at most one question per cell at a time.

    200 within the time-out is ALIVE; another status, a refusal or a reset is DEAD; silence is
    NO_ANSWER. `on_answer(cell_id, answer, detail)` is called in the event loop.
    """

    def __init__(self, on_answer: Callable[[str, Answer, str], None]) -> None:
        self._on_answer = on_answer
        self._session: aiohttp.ClientSession | None = None
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    def ask(self, cell_id: str, address: HostPort, timeout_s: float) -> None:
        """Ask once; does nothing while the same cell's last question is open."""
        if cell_id in self._asked:
            return
        task = asyncio.create_task(self._ask(cell_id, address, timeout_s), name=f"ask engine of {cell_id}")
        self._asked[cell_id] = task

    async def close(self) -> None:
        """Drop open questions and connections."""
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _ask(self, cell_id: str, address: HostPort, timeout_s: float) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=MAX_AT_ONCE)
            )
        try:
            async with self._slots:
                answer, detail = await _question(self._session, address, timeout_s)
        finally:
            # Before the answer is told: whoever hears it may ask again at once.
            self._asked.pop(cell_id, None)
        self._on_answer(cell_id, answer, detail)


async def _question(
    session: aiohttp.ClientSession, address: HostPort, timeout_s: float
) -> tuple[Answer, str]:
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.get(f"http://{address}/health", allow_redirects=False) as response,
        ):
            alive = response.status == 200
            return (Answer.ALIVE if alive else Answer.DEAD), f"/health answered {response.status}"
    except TimeoutError:
        return Answer.NO_ANSWER, f"/health did not answer within {timeout_s * 1000:.0f} ms"
    except (aiohttp.ClientError, OSError) as error:
        return Answer.DEAD, f"/health cannot be reached: {error}"
