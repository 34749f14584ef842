"""One grid for all commands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.e2e.shown_commands.grid import Grid, running_grid


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def grid(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grid]:
    async with running_grid(tmp_path_factory.mktemp("grid")) as started:
        yield started
