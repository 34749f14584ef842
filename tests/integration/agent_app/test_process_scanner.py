"""Looks at real processes: shared, bounded in time, and never taken for one another."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from headrace_agent.collectors.app.processes import listing, scanner
from headrace_agent.collectors.app.processes.belonging import Basis, find
from headrace_agent.collectors.app.processes.exits import Allowance, Exits
from headrace_agent.collectors.app.processes.listing import (
    Listing,
    read_command_line,
    read_listing,
    read_process,
)
from headrace_agent.collectors.app.processes.scanner import LookError, ProcessScanner
from headrace_agent.collectors.app.processes.table import Process, ProcessTable
from headrace_shared.clock import SystemClock


@pytest.fixture
def child() -> Iterator[Process]:
    with subprocess.Popen(["sleep", "3600"]) as running:
        process = read_process(running.pid)
        assert process is not None
        yield process
        running.kill()


async def until(condition: object) -> None:
    async with asyncio.timeout(30):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_this_process_and_its_sockets_are_found() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        found = read_listing()
        for sock, address in ((four, "127.0.0.1"), (six, "::1")):
            port = sock.getsockname()[1]
            assert found.holders_of(found.listeners_on(port, address)) == {os.getpid()}
    own = found.processes.get(os.getpid())
    assert own is not None
    assert (own.parent, own.user) == (os.getppid(), os.getuid())


SERVE_INSIDE = """
import socket, sys
listening = socket.create_server(("0.0.0.0", 9000))
print("listens", flush=True)
sys.stdin.read()
"""


@pytest.mark.extra
def test_a_server_in_a_network_of_its_own_is_found_by_its_address_there() -> None:
    """As an engine in a container is."""
    inside = f"ip link set lo up; ip addr add 10.77.0.2/32 dev lo; exec {sys.executable} -c '{SERVE_INSIDE}'"
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", inside], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"listens\n"
        found = find(read_listing(), "10.77.0.2", 9000, read_command_line, os.getpid())
        assert [each.pid for each in found.servers] == [server.pid]
        assert find(read_listing(), "10.77.0.3", 9000, read_command_line, os.getpid()).servers == ()
        server.communicate(b"", timeout=30)


SERVE = """
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[-1])))
print("listens", flush=True)
sys.stdin.read()
"""


@pytest.mark.extra
@pytest.mark.parametrize("port_named", [True, False])
def test_an_agent_that_is_another_user_has_only_the_command_line(port_named: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # With a leading zero it is the same port and no argument that names it.
    arguments = ["--port", str(port) if port_named else f"0{port}"]
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"listens\n"
        os.seteuid(65534)
        try:
            listed = read_listing()
            found = find(listed, "127.0.0.1", port, read_command_line, os.getpid())
        finally:
            os.seteuid(0)
        assert listed.unseen > 0
        if port_named:
            assert ([each.pid for each in found.servers], found.basis) == ([server.pid], Basis.COMMAND_LINE)
        else:
            assert found.members == ()
            assert "cannot see the engine's processes" in found.trouble
        server.communicate(b"", timeout=30)


async def test_engines_that_ask_together_share_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def count() -> Listing:
        nonlocal looks
        looks += 1
        return Listing(ProcessTable([]))

    monkeypatch.setattr(scanner.listing, "read_listing", count)
    shared = ProcessScanner(SystemClock())
    await asyncio.gather(*(shared.look("127.0.0.1", 8000 + i) for i in range(8)))
    assert looks <= 2
    await shared.look("127.0.0.1", 8000)
    assert looks <= 3, "a later one looks anew"


async def test_a_look_that_hangs_is_given_up_and_none_is_begun_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading of a process that is stuck in the driver can block for ever."""
    release = threading.Event()

    def hang() -> Listing:
        release.wait(30)
        return Listing(ProcessTable([]))

    monkeypatch.setattr(scanner.listing, "read_listing", hang)
    looking = ProcessScanner(SystemClock(), timeout_s=0.1)
    with pytest.raises(LookError, match="longer than"):
        await looking.look(None, 8000)
    before = threading.active_count()
    with pytest.raises(LookError, match="has not come back"):
        await looking.look(None, 8000)
    assert threading.active_count() <= before
    release.set()
    monkeypatch.setattr(scanner.listing, "read_listing", lambda: Listing(ProcessTable([])))
    await until(lambda: looking._pending is not None and looking._pending.done())
    looking._timeout_s = 30.0
    assert "nothing that can be seen listens" in (await looking.look(None, 8000)).found.trouble


async def test_a_host_that_hides_its_processes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Listing:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(scanner.listing, "read_listing", refuse)
    with pytest.raises(LookError, match=r"cannot be listed: .*Permission denied"):
        await ProcessScanner(SystemClock()).look(None, 8000)


async def test_an_exit_is_told_once(child: Process) -> None:
    ended: list[Process] = []
    exits = Exits(ended.append, Allowance())
    exits.watch(child)
    exits.watch(child)
    assert (len(exits), ended) == (1, [])
    os.kill(child.pid, signal.SIGKILL)
    await until(lambda: ended)
    exits.sweep()
    assert (ended, len(exits)) == ([child], 0)


async def test_a_sweep_tells_what_the_loop_has_not_come_to(child: Process) -> None:
    ended: list[Process] = []
    exits = Exits(ended.append, Allowance())
    exits.watch(child)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
    exits.sweep()
    assert ended == [child]


async def test_a_pid_that_is_anothers_by_now_is_not_watched_in_its_name(child: Process) -> None:
    ended: list[Process] = []
    exits = Exits(ended.append, Allowance())
    former = Process(child.pid, child.parent, child.started - 1)
    exits.watch(former)
    assert (ended, len(exits)) == ([former], 0)


async def test_one_that_has_ended_before_is_told_at_once() -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    ended: list[Process] = []
    exits = Exits(ended.append, Allowance())
    exits.watch(Process(gone.pid, 1, 1))
    assert len(ended) == 1


async def test_descriptors_are_bounded_and_given_back(child: Process) -> None:
    """All engines of an agent watch within one allowance."""
    allowance = Allowance(1)
    first, second = Exits(lambda process: None, allowance), Exits(lambda process: None, allowance)
    own = read_process(os.getppid())
    assert own is not None
    before = len(os.listdir("/proc/self/fd"))
    first.watch(child)
    second.watch(own)
    assert (len(first), len(second)) == (1, 0)
    assert "too many processes" in second.trouble
    first.close()
    second.watch(own)
    assert len(second) == 1
    second.close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_kernel_that_has_no_such_watch_is_said(
    child: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    exits = Exits(lambda process: None, Allowance())
    exits.watch(child)
    assert exits.trouble == "processes cannot be watched: pidfd_open: Function not implemented"
    assert len(exits) == 0
    assert listing.read_process(child.pid) == child
