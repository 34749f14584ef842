"""One region for all tests of this folder; each leaves it as it found it, or it is made anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.e2e.whole_path.region import AWAY, Region, running_region


class Shared:
    """Holds the region, and replaces one that a failed test has left broken."""

    def __init__(self, directories: pytest.TempPathFactory) -> None:
        self._directories = directories
        self._stack = AsyncExitStack()
        self._region: Region | None = None

    async def region(self) -> Region:
        """A region whose cells all serve."""
        if self._region is not None and not await _whole(self._region):
            await self.close()
        if self._region is None:
            directory = self._directories.mktemp("region")
            self._region = await self._stack.enter_async_context(running_region(directory))
        return self._region

    async def close(self) -> None:
        """Stop it; fails where a program did not end as it should."""
        self._region = None
        await self._stack.aclose()


async def _whole(region: Region) -> bool:
    try:
        await region.serving()
    except (AssertionError, *AWAY):
        return False
    return True


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    keeper = Shared(tmp_path_factory)
    yield keeper
    await keeper.close()


@pytest_asyncio.fixture(loop_scope="package")
async def region(shared: Shared) -> AsyncIterator[Region]:
    """The region, all cells serving. No task may be left by the test."""
    region = await shared.region()
    before = asyncio.all_tasks()
    yield region
    left = {task.get_name() for task in asyncio.all_tasks() - before - {asyncio.current_task()}}
    # Programs that the test started again are watched by their stack until the region ends.
    left -= {f"watch {program.spec.name}" for program in region.stack.programs}
    assert not left, "tasks left running"
