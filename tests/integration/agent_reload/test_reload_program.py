"""SIGHUP as the operator and the system send it to the program."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp

from headrace_shared.clock import SystemClock
from tests.integration.agent_cli.test_cli import PROGRAM, agent, write
from tests.integration.agent_heartbeat.controller import until
from tests.support.ports import free_port
from tests.support.program import EXIT_LIMIT_S

HELD = """\
import asyncio, os, signal
from headrace_shared.tasks import hold_hangups, on_hangup
hold_hangups()
os.kill(os.getpid(), signal.SIGHUP)
async def main():
    heard = asyncio.Event()
    on_hangup(heard.set)
    await asyncio.wait_for(heard.wait(), 20)
    heard.clear()
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.wait_for(heard.wait(), 20)
asyncio.run(main())
print("heard twice")
"""


def test_a_hangup_that_comes_before_the_program_listens_is_heard_and_ends_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "heard twice\n"), done.stderr


async def test_sighup_takes_up_the_file_and_refuses_a_bad_one(tmp_path: Path) -> None:
    config = write(tmp_path)
    good = config.read_text()
    async with agent(config) as running:
        before = (await running.logged(event="agent started"))["config"]
        config.write_text(
            good.replace("id: c1", "id: c1\n    labels: {rack: '7'}") + "colour: red\nnode: n\n"
        )
        running.process.send_signal(signal.SIGHUP)
        refused = await running.logged(event="reload refused; the settings of before stay in force")
        said = "\n".join(refused["why"])
        for words in ("line 12: colour: unknown key", "line 13: node: this key stands twice"):
            assert words in said
        config.write_text(good.replace("id: c1", "id: c9"))
        running.process.send_signal(signal.SIGHUP)
        taken = await running.logged(event="settings reloaded")
        assert (taken["cells_added"], taken["cells_removed"]) == (["c9"], ["c1"])
        assert taken["config"] != before
        config.write_text(good.replace("host-1", "host-2"))
        running.process.send_signal(signal.SIGHUP)
        await until(lambda: any("host-2" in str(line.get("why")) for line in running.lines), 30.0)
        code, seconds = await running.terminate()
    assert code == 0
    assert seconds < EXIT_LIMIT_S
    assert running.other == []


async def test_what_systemd_ends_for_its_silence_leaves_its_stack(tmp_path: Path) -> None:
    """The watchdog's signal is SIGABRT; without the stack nobody learns where the loop hung."""
    async with agent(write(tmp_path)) as running:
        running.process.send_signal(signal.SIGABRT)
        assert await running.ended() == -signal.SIGABRT
    said = "".join(running.other)
    assert "Fatal Python error: Aborted" in said
    assert "run_program" in said


async def page_of(session: aiohttp.ClientSession, port: int) -> str:
    async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return await answer.text()


async def test_the_log_takes_another_level(tmp_path: Path) -> None:
    port = free_port()
    config = write(tmp_path)
    good = config.read_text() + f"metrics_listen: 127.0.0.1:{port}\n"
    config.write_text(good)
    async with agent(config) as running, aiohttp.ClientSession() as session:

        async def reload(text: str, result: str) -> None:
            config.write_text(text)
            running.process.send_signal(signal.SIGHUP)
            wanted = f'headrace_agent_reloads_total{{result="{result}"}} 1.0'
            async with asyncio.timeout(30):
                while wanted not in await page_of(session, port):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

        await reload(good.replace("format: json", "format: json, level: error"), "applied")
        await reload("colour: red\n", "refused")
        code, _ = await running.terminate()
    assert code == 0
    said = [line["event"] for line in running.lines]
    assert "reload refused; the settings of before stay in force" in said
    assert "agent stopped" not in said
    assert "settings reloaded" not in said


# Makes its standard input the terminal that controls it, as a login shell does.
WITH_TERMINAL = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def read_until(descriptor: int, words: bytes, seconds: float) -> bytes:
    """What a terminal shows until these words."""
    clock, shown = SystemClock(), b""
    deadline = clock.now() + seconds
    while words not in shown:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - clock.now()))
        assert ready, f"{words!r} did not come: {shown!r}"
        shown += os.read(descriptor, 65536)
    return shown


def test_an_agent_whose_terminal_is_closed_ends_in_order(tmp_path: Path) -> None:
    """A reload would leave it running for nobody, and its next log line would break."""
    ours, theirs = pty.openpty()
    config = write(tmp_path)
    command = [sys.executable, "-c", WITH_TERMINAL, *PROGRAM, "run", "--config", str(config)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    try:
        os.close(theirs)
        read_until(ours, b"agent started", 60.0)
        process.send_signal(signal.SIGHUP)
        read_until(ours, b"nothing in it has changed", 60.0)
        os.close(ours)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
