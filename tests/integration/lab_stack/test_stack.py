"""Programs as subprocesses: their start, their end, and nothing left of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace_lab.stack.ports import KEPT, bindable, free_ports
from headrace_lab.stack.program import AT_A_SITE, Spec, StackError
from headrace_lab.stack.stack import Stack
from tests.support.program import EXIT_LIMIT_S

SERVE = """
import http.server, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(STATUS); self.end_headers()
    def log_message(self, *a): pass
signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""
PARENT = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=OWN)
signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))
print("child", child.pid, flush=True)
time.sleep(60)
"""


def python(name: str, code: str, port: int = 0, status: int = 200, **extra: object) -> Spec:
    text = textwrap.dedent(code).replace("PORT", str(port)).replace("STATUS", str(status))
    ports, url = ((port,), f"http://127.0.0.1:{port}/") if port else ((), "")
    return Spec(name, (sys.executable, "-c", text), ports, url, **extra)  # type: ignore[arg-type]


async def said(stack: Stack, name: str, what: str) -> str:
    """Wait until the program's log holds `what`; the log."""
    async with asyncio.timeout(30):
        while True:
            text = stack.program(name).log.read_text(encoding="utf-8")
            if what in text:
                return text
            await asyncio.sleep(0.02)


async def test_start_wait_stop_and_account(tmp_path: Path) -> None:
    a, b = free_ports(2)
    async with Stack(tmp_path) as stack:
        await stack.start([python("a", SERVE, a)])
        await stack.start([python("b", SERVE, b)])
        await stack.wait_ready()
        assert not bindable("127.0.0.1", a)
        report = await stack.stop()
    assert [(e.name, e.code, e.killed) for e in report.exits] == [("b", 0, False), ("a", 0, False)]
    assert all(e.sigterm_s is not None and e.sigterm_s < EXIT_LIMIT_S for e in report.exits)
    assert report.leftovers == 0
    assert "serving" in (tmp_path / "a.log").read_text(encoding="utf-8")
    assert bindable("127.0.0.1", a) == a


async def test_the_lab_goes_before_what_it_measures(tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    async with Stack(tmp_path) as stack:
        await stack.start([python("a", "import os; print('nice', os.nice(0), flush=True)")])
        text = await said(stack, "a", "nice")
    assert int(text.split()[1]) == min(own + AT_A_SITE, 19)


async def test_who_ignores_sigterm_is_killed_and_named(tmp_path: Path) -> None:
    async with Stack(tmp_path) as stack:
        await stack.start([python("stubborn", STUBBORN, grace_s=0.2)])
        await said(stack, "stubborn", "up")
        report = await stack.stop()
    (end,) = report.exits
    assert end.killed
    assert end.code == -signal.SIGKILL
    assert report.leftovers == 0


@pytest.mark.parametrize("own_session", [False, True])
async def test_a_child_left_behind_is_reported_and_ended(tmp_path: Path, own_session: bool) -> None:
    async with Stack(tmp_path) as stack:
        await stack.start([python("parent", PARENT.replace("OWN", str(own_session)))])
        child = int((await said(stack, "parent", "child")).split()[1])
        report = await stack.stop()
    assert len(report.processes) == 1
    assert str(child) in report.processes[0]
    assert not _runs(child)


async def test_a_port_that_is_still_held_is_reported(tmp_path: Path) -> None:
    with bound_port() as port:
        async with Stack(tmp_path) as stack:
            await stack.start([Spec("idle", (sys.executable, "-c", "import time; time.sleep(60)"), (port,))])
            report = await stack.stop()
    assert report.ports == (port,)


async def test_a_program_that_dies_ends_the_work_with_its_last_words(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cancelled.set()

    async with Stack(tmp_path) as stack:
        await stack.start(
            [python("brittle", "import sys, time; time.sleep(0.3); sys.exit('the disk is full')")]
        )
        with pytest.raises(StackError, match=r"brittle ended by itself with status 1(.|\n)*the disk is full"):
            await stack.guarded(work(), "work")
    assert cancelled.is_set()


async def test_a_planned_kill_is_no_failure(tmp_path: Path) -> None:
    async with Stack(tmp_path) as stack:
        await stack.start([python("victim", STUBBORN)])
        await said(stack, "victim", "up")
        stack.program("victim").kill(planned=True)
        assert await stack.guarded(asyncio.sleep(0.3, "went on"), "work") == "went on"
        report = await stack.stop()
    (end,) = report.exits
    assert (end.planned, end.code, end.sigterm_s) == (True, -signal.SIGKILL, None)


async def test_who_never_gets_ready_is_named_with_what_it_said(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    async with Stack(tmp_path) as stack:
        await stack.start([python("slow", SERVE, port, status=503, ready_s=1.0)])
        await said(stack, "slow", "serving")
        with pytest.raises(ExceptionGroup) as caught:
            await stack.wait_ready()
    assert caught.group_contains(StackError, match=r"slow was not ready after 1 s(.|\n)*HTTP 503")


async def test_a_program_that_does_not_exist_is_said(tmp_path: Path) -> None:
    async with Stack(tmp_path) as stack:
        await stack.start([Spec("ghost", ("/no/such/program",), ready_url="http://127.0.0.1:9/")])
        with pytest.raises(ExceptionGroup) as caught:
            await stack.wait_ready()
    assert caught.group_contains(StackError, match="cannot be started")


async def test_an_error_in_the_work_leaves_nothing(tmp_path: Path) -> None:
    pids: list[int] = []

    async def work() -> None:
        async with Stack(tmp_path) as stack:
            await stack.start([python("a", STUBBORN, grace_s=0.2)])
            pids.append(stack.program("a").pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert not _runs(pids[0])


@contextlib.contextmanager
def bound_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


LAB = """
import asyncio, sys
from pathlib import Path
from headrace_lab.stack import interrupt
from headrace_lab.stack.program import Spec
from headrace_lab.stack.stack import Stack
from headrace_lab.stack.program import AT_A_SITE

async def main():
    async with Stack(Path(sys.argv[1])) as stack:
        await stack.start([Spec("parent", (sys.executable, "-c", sys.argv[2]))])
        while "child" not in (text := stack.program("parent").log.read_text()):
            await asyncio.sleep(0.02)
        print(stack.program("parent").pid, text.split()[1], flush=True)
        await asyncio.sleep(60)
    return 1

sys.exit(interrupt.run(main, lambda text: print(text, flush=True)))
"""


async def _lab_ended_by(which: signal.Signals, run_dir: Path) -> tuple[int, list[int], float]:
    """Run a small lab, send it the signal; its exit status, its programs' ids, and how long it took."""
    lab = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LAB, str(run_dir), PARENT.replace("OWN", "False")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert lab.stdout is not None
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(30):
            pids = [int(word) for word in (await lab.stdout.readline()).split()]
            started = loop.time()
            lab.send_signal(which)
            await lab.stdout.read()
            code = await lab.wait()
    finally:
        if lab.returncode is None:
            lab.kill()
    return code, pids, loop.time() - started


async def _gone(pids: list[int]) -> bool:
    for _ in range(600):
        if not any(_runs(pid) for pid in pids):
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.parametrize(("which", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_to_the_lab_stops_all_soon(which: signal.Signals, status: int, tmp_path: Path) -> None:
    code, pids, took = await _lab_ended_by(which, tmp_path)
    assert code == status
    assert len(pids) == 2
    assert await _gone(pids)
    assert took < 20.0, "its programs would sleep for 60 s"


async def test_a_killed_lab_leaves_no_program_and_no_program_s_child(tmp_path: Path) -> None:
    """SIGKILL gives the lab no chance to clean up: the kernel and the guard do it."""
    code, pids, _ = await _lab_ended_by(signal.SIGKILL, tmp_path)
    assert code == -signal.SIGKILL
    assert len(pids) == 2
    gone = await _gone(pids)
    for pid in pids if not gone else []:
        os.kill(pid, signal.SIGKILL)
    assert gone


OTHER = """
import random, sys
from headrace_lab.stack.ports import free_ports
print(*free_ports(3, rng=random.Random(7)), flush=True)
sys.stdin.read()
"""


def test_two_labs_do_not_choose_the_same_ports() -> None:
    """What one has chosen is free until its programs start."""
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        ours = set(free_ports(3, rng=random.Random(7)))  # noqa: S311
        assert len(theirs) == len(ours) == 3
        assert not theirs & ours
        assert other.stdin is not None
        other.stdin.close()
    again = set(free_ports(3, rng=random.Random(7)))  # noqa: S311
    assert not again & ours
    assert again & theirs


def test_a_process_keeps_a_bounded_number_of_ports() -> None:
    """Each is a descriptor."""
    rng = random.Random(8)  # noqa: S311
    free_ports(10, rng=rng)
    before = psutil.Process().num_fds()
    for _ in range(30):
        free_ports(10, rng=rng)
    assert psutil.Process().num_fds() <= before + KEPT
