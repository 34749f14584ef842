"""Rules for every test: no task may outlive its test, and no log that a program set up in it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

ENDING_S = 2.0

# How long an example takes says what else the machine does.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")

# Whoever starts the tests in the background of a script has Ctrl-C ignored, and so would each program that a
# test starts and ends by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """A program that runs within a test's process sets up the log of it all, on a stream that ends with the
    test: whoever logged later would fail."""
    was, configured = structlog.get_config(), structlog.is_configured()
    yield
    if structlog.get_config() == was:
        return
    if configured:
        structlog.configure(**was)
    else:
        structlog.reset_defaults()


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
    left = _others(before)
    if left:
        # A library's own tasks may still be ending; one that is leaked does not end.
        await asyncio.wait(left, timeout=ENDING_S)
        left = _others(before)
    for task in left:
        task.cancel()
    assert not left, f"tasks left running: {[task.get_name() for task in left]}"


def _others(before: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """The tasks that run now and did not before, this one aside."""
    return {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
