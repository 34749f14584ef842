"""Which processes are an engine's: who listens on its port, and all that descends from it. No files here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from headrace_agent.collectors.app.processes.listing import Listing
from headrace_agent.collectors.app.processes.sockets import Listener
from headrace_agent.collectors.app.processes.table import Process, ProcessTable

MAX_PROCESSES: Final = 64
# Start engines and outlive none; as the kernel shortens their names to 15 characters.
_LAUNCHERS: Final = ("text-generation", "mpirun", "mpiexec", "orterun", "prterun", "trtllm-llmapi-l")
_PROXY: Final = "docker-proxy"

CommandLines = Callable[[int], tuple[str, ...]]


class Basis(Enum):
    """How the server was recognised."""

    SOCKET = "it holds the listening socket"
    COMMAND_LINE = "its command line names the port"


@dataclass(frozen=True, slots=True)
class Belonging:
    """An engine's processes.

    `servers` listen for it, `members` are those, what started them for this purpose alone, and
    their descendants: at most MAX_PROCESSES, the nearest first. Where there are none, `trouble`
    says why and what to do.
    """

    servers: tuple[Process, ...] = ()
    members: tuple[Process, ...] = ()
    basis: Basis | None = None
    trouble: str = ""


def find(
    listing: Listing, address: str | None, port: int, command_lines: CommandLines, own_pid: int
) -> Belonging:
    """The processes of the engine at `address` (an IP address; None = any) and `port`.

    The agent itself and what started it, up to the first process, belong to no engine: systemd
    holds the sockets that it passes on.
    """
    listeners = listing.listeners_on(port, address)
    if not listeners and address is not None:
        listeners = listing.listeners_inside(address, port)
    if not listeners:
        return Belonging(trouble=f"nothing that can be seen listens on port {port}; {_CONTAINER}")
    apart = {own_pid, *(each.pid for each in listing.processes.ancestors(own_pid))}
    holders = listing.holders_of(listeners)
    proxies = {pid for pid in holders if _is(listing.processes, pid, _PROXY)}
    if holders - proxies - apart:
        return _belonging(listing.processes, holders - proxies - apart, Basis.SOCKET)
    if holders & apart:
        return Belonging(trouble=f"port {port} is held by the agent itself or by what started it")
    return _by_command_line(listing, listeners, port, proxies, command_lines, apart)


def grown(processes: ProcessTable, servers: Iterable[Process], basis: Basis | None) -> Belonging:
    """The same servers with the descendants that they have now."""
    left = {each.pid for each in servers if processes.has(each)}
    return _belonging(processes, left, basis) if left else Belonging()


_CONTAINER: Final = (
    "to see into containers run as root or with CAP_SYS_PTRACE; until then the deaths of a core in one "
    "are seen by the 100 ms probe"
)
_UNSEEN: Final = (
    "cannot see the engine's processes: run as the engine's user, with CAP_SYS_PTRACE, or in a container "
    "with the host's pid namespace; deaths of its core are then seen by the 100 ms probe"
)


def _by_command_line(
    listing: Listing,
    listeners: list[Listener],
    port: int,
    proxies: set[int],
    command_lines: CommandLines,
    apart: set[int],
) -> Belonging:
    """Anybody may read command lines, and whose socket it is; what holds it, only its user may."""
    wanted, users = {str(port)}, {each.uid for each in listeners}
    if proxies:
        targets = [_target(command_lines(pid)) for pid in proxies]
        inner = [each for ip, number in targets for each in listing.listeners_inside(ip, int(number))]
        if holders := listing.holders_of(inner) - apart:
            return _belonging(listing.processes, holders, Basis.SOCKET)
        wanted = {number for _, number in targets} - {"0"}
    found = set()
    for process in listing.processes:
        if process.pid in apart | proxies or process.pid == process.parent:
            continue
        if (proxies or process.user in users) and _names_port(command_lines(process.pid), wanted):
            found.add(process.pid)
    tops = listing.processes.topmost(found)
    if len(tops) != 1:
        more = f"; {len(tops)} processes name port {'/'.join(sorted(wanted))}" if tops else ""
        return Belonging(trouble=_UNSEEN + more)
    return _belonging(listing.processes, {tops[0].pid}, Basis.COMMAND_LINE)


def _belonging(processes: ProcessTable, holders: set[int], basis: Basis | None) -> Belonging:
    servers = processes.topmost(holders)
    tops = {_launcher(processes, server).pid for server in servers}
    members = [each for top in processes.topmost(tops) for each in (top, *processes.descendants(top.pid))]
    return Belonging(tuple(servers), tuple(members[:MAX_PROCESSES]), basis)


def _launcher(processes: ProcessTable, server: Process) -> Process:
    """The topmost of an unbroken line of launchers above a server; the server where there is none."""
    top = server
    for above in processes.ancestors(server.pid):
        if above.name not in _LAUNCHERS:
            break
        top = above
    return top


def _is(processes: ProcessTable, pid: int, name: str) -> bool:
    process = processes.get(pid)
    return process is not None and process.name == name


def _target(arguments: tuple[str, ...]) -> tuple[str, str]:
    """Address and port in a container that docker-proxy leads to; "" and "0" where it does not say."""
    options = dict(pairwise(arguments))
    port = options.get("-container-port", "")
    return options.get("-container-ip", ""), port if port.isascii() and port.isdigit() else "0"


def _names_port(arguments: tuple[str, ...], ports: set[str]) -> bool:
    """Whether a port is an argument of its own, or follows `--port=`."""
    return any(each in ports or each.removeprefix("--port=") in ports for each in arguments[1:])
