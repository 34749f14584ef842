"""The WAN emulator as a program: new figures while it runs, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from headrace_lab.wan.tun import ip, namespace
from tests.support.program import process_of

pytestmark = pytest.mark.extra

NEAR, FAR = f"hr{os.getpid()}n", f"hr{os.getpid()}f"
FILE = f"""
near: {{namespace: {NEAR}, addresses: [10.213.9.1/24]}}
far: {{namespace: {FAR}, addresses: [10.213.9.2/24]}}
paths: {{10.213.9.2: {{delay_ms: 1}}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wan.yaml"
    path.write_text(FILE)
    return path


def command(file: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "headrace_lab.wan", str(file))


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def test_new_figures_are_taken_and_what_cannot_be_is_refused(file: Path) -> None:
    with namespace(NEAR), namespace(FAR):
        async with process_of(*command(file)) as wan:
            await wan.logged(event="forwarding")
            for text, event in (
                (FILE.replace("delay_ms: 1", "delay_ms: -1"), "paths kept: the file cannot be used"),
                (FILE + "mtu: 1400", "paths kept: only paths and default can change while running"),
                (FILE.replace("delay_ms: 1", "delay_ms: 2"), "paths set"),
            ):
                write(file, text)
                wan.process.send_signal(signal.SIGHUP)
                await wan.logged(event=event)
            code, _ = await wan.terminate()
            assert code == 0
            assert wan.lines[-1]["event"] == "ended"


async def test_a_namespace_that_is_not_there_is_named(file: Path) -> None:
    async with process_of(*command(file)) as wan:
        assert await wan.ended() == 2
    assert NEAR in "".join(wan.other)


async def test_a_device_that_is_taken_away_ends_it(file: Path) -> None:
    with namespace(NEAR), namespace(FAR):
        async with process_of(*command(file)) as wan:
            await wan.logged(event="forwarding")
            ip("-n", NEAR, "link", "del", "wan0")
            assert await wan.ended() == 2
