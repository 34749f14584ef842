"""/proc, as files that a test writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.processes import listing
from headrace_agent.collectors.app.processes.listing import (
    describe,
    parse_stat,
    read_command_line,
    read_listing,
    read_table,
)
from headrace_agent.collectors.app.processes.table import Process
from tests.unit.agent.collectors.app.processes.test_listening_sockets import HEAD, row


def stat(pid: int, name: str = "vllm", state: str = "S", parent: int = 1, started: int = 500) -> bytes:
    """The text of /proc/PID/stat, of which the 22nd field is the start."""
    return f"{pid} ({name}) {state} {parent} {' '.join(['0'] * 17)} {started} 0 0\n".encode()


class Proc:
    """A /proc with a few processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir()
        (root / "self").mkdir()

    def process(self, pid: int, *sockets: int, **fields: object) -> Path:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "stat").write_bytes(stat(pid, **fields))  # type: ignore[arg-type]
        (folder / "fd" / "0").symlink_to("/dev/null")
        for number, inode in enumerate(sockets, 3):
            (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
        return folder

    def listens(self, inode: int) -> None:
        with (self.root / "net" / "tcp").open("ab") as file:
            file.write(HEAD if file.tell() == 0 else b"")
            file.write(row("0100007F:1F40", inode=inode))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_every_holder_of_a_socket_is_found(proc: Proc) -> None:
    """A server and the workers that it forked hold it together."""
    proc.listens(77)
    proc.process(10, 77, 5)
    proc.process(11, 77, parent=10)
    proc.process(12, 5, parent=10)
    found = read_listing(proc.root)
    assert found.holders_of(found.listeners_on(8000, "127.0.0.1")) == {10, 11}
    assert found.holders.keys() == {77}
    assert [each.pid for each in found.processes.descendants(10)] == [11, 12]


def test_hidden_descriptors_are_counted_and_nothing_else(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    proc.listens(77)
    proc.process(10, 77)
    real = listing.os.listdir

    def hide(path: object) -> list[str]:
        if str(path).endswith("/10/fd"):
            raise PermissionError
        return real(path)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(listing.os, "listdir", hide)
    found = read_listing(proc.root)
    assert (found.unseen, found.holders) == (1, {})
    assert found.processes.get(10) == Process(10, 1, 500)


def test_what_ends_meanwhile_is_left_out(proc: Proc) -> None:
    proc.process(10)
    (proc.root / "11").mkdir()
    assert [each.pid for each in read_table(proc.root)] == [10]
    assert read_listing(proc.root).listeners == ()


@pytest.mark.parametrize("name", ["vllm", "a) S 1 (b", "", "two words", "((("])
def test_a_process_may_call_itself_anything(name: str) -> None:
    found = parse_stat(stat(10, name, parent=7))
    assert found is not None
    assert (found.name, found.parent, found.started) == (name, 7, 500)


@pytest.mark.parametrize("state", ["Z", "X", "x"])
def test_one_that_has_ended_is_none(state: str) -> None:
    assert parse_stat(stat(10, state=state)) is None


@given(st.binary(max_size=200))
def test_no_stat_breaks_it(text: bytes) -> None:
    parse_stat(text)


def test_command_lines(proc: Proc) -> None:
    folder = proc.process(10)
    assert read_command_line(10, proc.root) == ()
    (folder / "cmdline").write_bytes(b"/usr/bin/python3\0-m\0vllm\0--port\x008000\0")
    assert read_command_line(10, proc.root) == ("/usr/bin/python3", "-m", "vllm", "--port", "8000")
    (folder / "cmdline").write_bytes(b"VLLM::EngineCore" + b"\0" * 100)
    assert read_command_line(10, proc.root) == ("VLLM::EngineCore",)
    (folder / "cmdline").write_bytes(b"")
    assert read_command_line(10, proc.root) == ()


@pytest.mark.parametrize(
    ("name", "command_line", "said"),
    [
        ("python3", ("VLLM::EngineCore",), "VLLM::EngineCore"),
        ("python3", ("VLLM::Worker_TP0 on GPU 1",), "VLLM::Worker_TP0 on GPU 1"),
        ("vllm", ("/opt/venv/bin/vllm", "serve", "model"), "vllm"),
        (
            "python3",
            ("/usr/bin/python3.12", "-m", "sglang.launch_server", "--x"),
            "python3.12 -m sglang.launch_server --x",
        ),
        ("kworker", (), "kworker"),
        ("x", ("a\x1b[31m\nb",), "a [31m b"),
        ("x", ("y" * 100,), "y" * 63 + "…"),
    ],
)
def test_what_people_call_it(name: str, command_line: tuple[str, ...], said: str) -> None:
    assert describe(name, command_line) == said
