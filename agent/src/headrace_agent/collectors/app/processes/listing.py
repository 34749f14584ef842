"""Reads the processes of this host and who holds its listening sockets, from /proc.

Not psutil: that names one holder of a socket, and several processes share an engine's; and it takes
four times as long for the list alone. All of this blocks, and on a sick host may block for ever:
never call it from the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace_agent.collectors.app.processes.sockets import Listener, read_addresses, read_listeners
from headrace_agent.collectors.app.processes.table import Process, ProcessTable

PROC: Final = Path("/proc")
# More descriptors than this are not looked through: a listening socket is among the first.
MAX_DESCRIPTORS: Final = 16_384
MAX_NAMESPACES: Final = 128
MAX_ARGUMENTS: Final = 256
MAX_TITLE: Final = 64
_ENDED: Final = (b"Z", b"X", b"x")
_SOCKET: Final = "socket:["
# Names that say what runs a program, not which.
_INTERPRETERS: Final = ("python", "sh", "bash", "dash", "env", "node", "perl", "ruby", "java", "uv", "conda")


@dataclass(frozen=True, slots=True)
class Namespace:
    """Another network on this host, as containers have one: its addresses and its listening sockets."""

    addresses: frozenset[str]
    listeners: tuple[Listener, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """Processes and listening sockets of one moment.

    `inside` are the containers' networks, as far as this user may see. `holders` maps a socket's
    inode to the pids that have it open, likewise: of `unseen` processes the descriptors are hidden,
    as they are another user's.
    """

    processes: ProcessTable
    listeners: tuple[Listener, ...] = ()
    holders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    unseen: int = 0
    inside: tuple[Namespace, ...] = ()

    def listeners_inside(self, address: str, port: int) -> list[Listener]:
        """The sockets that listen on a port of a container's address."""
        return [
            each
            for namespace in self.inside
            if address in namespace.addresses
            for each in namespace.listeners
            if each.port == port and each.serves(address)
        ]

    def listeners_on(self, port: int, address: str | None = None) -> list[Listener]:
        """The sockets that listen on a port of an address (None: of any)."""
        return [each for each in self.listeners if each.port == port and each.serves(address)]

    def holders_of(self, listeners: Iterable[Listener]) -> set[int]:
        """The pids that have any of these sockets open, as far as they can be seen."""
        return {pid for each in listeners for pid in self.holders.get(each.inode, ())}


def read_listing(proc: Path = PROC) -> Listing:
    """Everything, as of now; what ends meanwhile is left out."""
    table = read_table(proc)
    listeners = read_listeners(proc)
    inside = tuple(_namespaces(table, proc))
    wanted = {each.inode for each in listeners}
    wanted |= {each.inode for namespace in inside for each in namespace.listeners}
    holders: dict[int, list[int]] = {}
    unseen = 0
    for process in table:
        try:
            inodes = _sockets(proc / str(process.pid) / "fd") & wanted
        except PermissionError:
            unseen += 1
            continue
        for inode in inodes:
            holders.setdefault(inode, []).append(process.pid)
    held = {inode: tuple(pids) for inode, pids in holders.items()}
    return Listing(table, listeners, held, unseen, inside)


def read_table(proc: Path = PROC) -> ProcessTable:
    """The processes alone, which is the quick part."""
    found = (read_process(int(name), proc) for name in os.listdir(proc) if name.isdigit())
    return ProcessTable(process for process in found if process is not None)


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """One process; None where there is none by that pid, or it has ended."""
    folder = f"{proc}/{pid}"
    try:
        with open(f"{folder}/stat", "rb") as file:
            text = file.read()
        user = os.stat(folder).st_uid
    except OSError:
        return None
    return parse_stat(text, user)


def parse_stat(text: bytes, user: int = -1) -> Process | None:
    """The text of /proc/PID/stat; None where it is not understood or the process has ended.

    A process chooses its own name, and may put brackets and blanks in it: the last bracket ends it.
    """
    head, _, tail = text.rpartition(b")")
    pid, _, name = head.partition(b" (")
    fields = tail.split()
    try:
        if fields[0] in _ENDED:
            return None
        return Process(int(pid), int(fields[1]), int(fields[19]), name.decode("utf-8", "replace"), user)
    except (ValueError, IndexError):
        return None


def read_command_line(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The arguments a process was started with, or the title that it gave itself; empty: not to be seen."""
    try:
        with (proc / str(pid) / "cmdline").open("rb") as file:
            text = file.read(64 * 1024)
    except OSError:
        return ()
    arguments = text.rstrip(b"\0 ").split(b"\0")[:MAX_ARGUMENTS]
    return tuple(each.decode("utf-8", "replace") for each in arguments) if arguments != [b""] else ()


def describe(name: str, command_line: tuple[str, ...]) -> str:
    """What people call a process: its own title or program, and of an interpreter what it runs."""
    if not command_line:
        return _printable(name)
    program = command_line[0].rpartition("/")[2] if " " not in command_line[0] else command_line[0]
    if len(command_line) > 1 and _is_interpreter(program):
        program = " ".join([program, *command_line[1:4]])
    return _printable(program or name)


def _is_interpreter(program: str) -> bool:
    return program.rstrip("0123456789.") in _INTERPRETERS


def _printable(text: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text).strip()
    return shown if len(shown) <= MAX_TITLE else shown[: MAX_TITLE - 1] + "…"


def _namespaces(table: ProcessTable, proc: Path) -> Iterator[Namespace]:
    """Every other network namespace that may be seen, each by one of its processes."""
    seen = {_network(proc / "self")}
    for process in table:
        folder = proc / str(process.pid)
        network = _network(folder)
        if network is None or network in seen:
            continue
        seen.add(network)
        yield Namespace(read_addresses(folder), read_listeners(folder))
        if len(seen) > MAX_NAMESPACES:
            return


def _network(folder: Path) -> str | None:
    """Which network namespace a process is in; None where that is hidden."""
    try:
        return os.readlink(folder / "ns" / "net")
    except OSError:
        return None


def _sockets(folder: Path) -> set[int]:
    """The inodes of a process's sockets. Raises PermissionError where its descriptors are hidden."""
    try:
        names = os.listdir(folder)[:MAX_DESCRIPTORS]
    except PermissionError:
        raise
    except OSError:
        return set()
    found = set()
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith(_SOCKET):
            found.add(int(target[len(_SOCKET) : -1]))
    return found
