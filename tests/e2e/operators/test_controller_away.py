"""What goes on in a terminal while a real controller is killed, and when it is back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.whole_path.region import Plan, Region, running_region
from tests.support.terminal import PROGRAM, needs_tmux, terminal_of

PATIENCE_S = 30.0
PLAN = Plan(sites={"berlin": ("berlin-1", "berlin-2")})
LIVE = "region lab: weights are published; 2 of 2 cells READY"


class Following:
    """A command that goes on, and its lines: what it printed and what it warned of, in their order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._process, self._lines = process, process.stdout

    async def says(self, words: str) -> str:
        """The next line with these words; those before it are dropped."""
        passed = []
        async with asyncio.timeout(PATIENCE_S):
            while line := (await self._lines.readline()).decode():
                if words in line:
                    return line
                passed.append(line)
        raise AssertionError(f"{words!r} did not come: {passed}")

    async def interrupted(self) -> int:
        """The exit code after Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        await self._lines.read()
        async with asyncio.timeout(PATIENCE_S):
            return await self._process.wait()


@asynccontextmanager
async def following(region: Region, *arguments: str) -> AsyncIterator[Following]:
    """`headrace` with these arguments, in a pipe."""
    process = await asyncio.create_subprocess_exec(
        *(str(PROGRAM), *arguments, "--url", region.fleet.api_url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(os.environ),
    )
    try:
        yield Following(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_tail_and_events_wait_for_a_controller_that_is_killed(tmp_path: Path) -> None:
    async with (
        running_region(tmp_path, PLAN) as region,
        following(region, "tail") as tail,
        following(region, "events", "--follow") as events,
    ):
        await tail.says("berlin/berlin-1  READY")
        await events.says("berlin-2")
        await region.kill("controller")
        assert "trying again" in await tail.says("the controller is away")
        assert "trying again" in await events.says("the controller is away")
        await region.restart("controller")
        await tail.says("the controller is back")
        await tail.says("berlin/berlin-2  READY")
        await events.says("the controller is back")
        await region.serving()
        await region.kill("cell berlin-2")
        assert "FAILED" in await tail.says("berlin/berlin-2  FAILED")
        await events.says("READY -> FAILED")
        assert await tail.interrupted() == 0
        assert await events.interrupted() == 0


@pytest.mark.extra
@needs_tmux
async def test_top_says_that_it_is_stale_and_goes_on_when_the_controller_is_back(tmp_path: Path) -> None:
    async with running_region(tmp_path, PLAN) as region:
        with terminal_of(tmp_path, ["top", "--url", region.fleet.api_url]) as terminal:
            shows = asyncio.to_thread
            await shows(terminal.shows, LIVE, "berlin-1")
            await region.kill("controller")
            seen = await shows(terminal.shows, "STALE: figures of", "berlin-1", "berlin-2")
            assert LIVE not in seen
            assert all(len(line) <= 80 for line in seen.splitlines())
            await region.restart("controller")
            await shows(terminal.shows, LIVE, "berlin-1")
            # One that hangs is no better than one that is gone.
            controller = region.program("controller")
            os.kill(controller.pid, signal.SIGSTOP)
            try:
                await shows(terminal.shows, "STALE: figures of")
            finally:
                os.kill(controller.pid, signal.SIGCONT)
            await shows(terminal.shows, LIVE)
            terminal.press("q")
            await shows(terminal.shows, "left with 0")
