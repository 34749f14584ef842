"""Which listening ports are worth a question. Pure.

A question is one GET, which an engine answers and most other servers refuse. Ports whose protocol
is known to be another, and those that the kernel chose itself (engines talk to their own workers
over such), are left alone unless a command line or the operator names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from headrace_agent.collectors.app.processes.listing import Listing
from headrace_agent.collectors.app.processes.sockets import Listener, unmapped
from headrace_agent.commands.discover.found import Candidate
from headrace_agent.commands.errors import CommandError

MAX_PORTS: Final = 64
CommandLines = Callable[[int], tuple[str, ...]]

# ssh, mail, names, directories, files, data bases, queues, the Docker and Kubernetes APIs,
# torch's rendezvous: none speaks HTTP as engines do, and some take a stranger's words ill.
OTHERS: Final = frozenset(
    [
        *(22, 25, 53, 110, 111, 139, 143, 179, 389, 445, 465, 514, 587, 631, 636, 873, 993, 995, 1433, 1521),
        *(2049, 2375, 2376, 2377, 2379, 2380, 3306, 3389, 4222, 5432, 5672, 6379, 6443, 7946, 9042, 9092),
        *(10250, 10255, 10256, 10257, 10259, 11211, 27017, 29500),
    ]
)
# Where engines and exporters listen unless told otherwise, likeliest first.
USUAL: Final = (8000, 9400, 30000, 8080, 3000, 8001, 8002, 80, 5000, 11434)
_ENGINE: Final = re.compile(
    r"vllm|sglang|trtllm|tensorrt|tritonserver|text-generation|llama[-_.]?(?:server|cpp)", re.I
)
# Servers that pass requests on: their models are those of engines elsewhere.
_PROXIES: Final = re.compile(
    r"^(?:envoy|nginx|haproxy|traefik|caddy|litellm|vllm-router|sglang-router|headrace-(?:agent|controller))$"
)
_WILDCARDS: Final = ("0.0.0.0", "::")


def parse_ports(text: str) -> tuple[int, ...]:
    """Ports as `8000,8001,9000-9010`. Raises CommandError."""
    ports: list[int] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        first, dash, last = part.partition("-")
        ends = [first, last] if dash else [first]
        if not all(end.isascii() and end.isdigit() and 0 < int(end) < 65536 for end in ends):
            raise CommandError(f"--ports: {part!r} is no port; write 8000,8001 or 8000-8010")
        ports += range(int(first), int(ends[-1]) + 1)
    if not ports or len(set(ports)) > MAX_PORTS:
        raise CommandError(f"--ports: name between 1 and {MAX_PORTS} ports (it names {len(set(ports))})")
    return tuple(dict.fromkeys(ports))


def choose(
    listing: Listing, command_lines: CommandLines, ephemeral: tuple[int, int], only: Collection[int] = ()
) -> list[Candidate]:
    """The ports to ask, likeliest first, at most MAX_PORTS; `only`: these and no others.

    `ephemeral` is the range from which the kernel itself chooses ports.
    """
    by_port: dict[int, list[Listener]] = {}
    for listener in listing.listeners:
        by_port.setdefault(listener.port, []).append(listener)
    # What the kernel forwards to a container listens nowhere on this host; who names it knows it.
    ranked = [(1, port, Candidate("127.0.0.1", port)) for port in only if port not in by_port]
    for port, listeners in by_port.items():
        pids = frozenset(listing.holders_of(listeners))
        lines = [command_lines(pid) for pid in pids]
        rank = _rank(port, lines, ephemeral) if not only else (0 if port in only else None)
        if rank is not None:
            listens = tuple(dict.fromkeys(unmapped(each.address) for each in listeners))
            like = any(_is_engine(line) for line in lines)
            ranked.append((rank, port, Candidate(_ask_at(listens), port, listens, pids, like)))
    return [candidate for _, _, candidate in sorted(ranked, key=lambda each: each[:2])[:MAX_PORTS]]


def _rank(port: int, lines: Iterable[tuple[str, ...]], ephemeral: tuple[int, int]) -> int | None:
    """Its place in the order of asking; None where it is left alone."""
    lines = list(lines)
    if any(_PROXIES.match(program) for line in lines for program in _programs(line)):
        return None
    if any(_names(line, port) for line in lines):
        return 0 if any(_is_engine(line) for line in lines) else 1
    if port in OTHERS or ephemeral[0] <= port <= ephemeral[1]:
        return None
    return 2 + USUAL.index(port) if port in USUAL else 2 + len(USUAL)


def _programs(line: tuple[str, ...]) -> Iterator[str]:
    """What a command line runs: its program, and of an interpreter the script."""
    for argument in line[:2]:
        yield argument.rpartition("/")[2]


def _is_engine(line: tuple[str, ...]) -> bool:
    return any(_ENGINE.search(argument) for argument in line[:6])


def _names(line: tuple[str, ...], port: int) -> bool:
    """Whether an argument is the port, or ends with it as `--port=8000` and `0.0.0.0:8000` do."""
    word = str(port)
    return any(each == word or each.endswith((f"={word}", f":{word}")) for each in line[1:])


def _ask_at(listens: Collection[str]) -> str:
    """An address of this host at which a socket bound to `listens` answers."""
    for bound, at in (("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("::", "::1")):
        if bound in listens:
            return at
    return next(iter(listens))
