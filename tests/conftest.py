"""Rules for every test: no task may outlive its test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_leftover_tasks(request: pytest.FixtureRequest) -> Iterator[None]:
    """In async tests, fail when a task is still running at the end of the test."""
    if request.node.get_closest_marker("asyncio") is None:
        yield
        return
    request.getfixturevalue("_task_guard")
    yield


@pytest.fixture
async def _task_guard() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = [
        task
        for task in asyncio.all_tasks() - before
        if not task.done() and task is not asyncio.current_task()
    ]
    for task in left:
        task.cancel()
    assert not left, f"tasks left running: {[task.get_name() for task in left]}"
