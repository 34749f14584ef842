"""What was seen of one engine's processes over time: its present life, and what is left of earlier ones.

No files, no clock: looks and exits in, words out. A life begins when processes are found to listen
for the engine and is over when the last of those has ended; members that run on are orphans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from headrace_agent.collectors.app.processes.belonging import Basis, Belonging
from headrace_agent.collectors.app.processes.table import Process

# An exit explains what happens to the engine within this time.
EXPLAINS_S: Final = 5.0
MAX_NAMED: Final = 3
MAX_ORPHANS: Final = 64


class Lives:
    """One engine's processes. `servers` are those that listen, in its present life, and still run."""

    def __init__(self) -> None:
        self.servers: set[Process] = set()
        self.basis: Basis | None = None
        self.over_at: float | None = None
        self._members: dict[Process, str] = {}
        self._orphans: dict[Process, str] = {}
        self._ended: deque[tuple[float, str]] = deque(maxlen=16)

    @property
    def running(self) -> list[Process]:
        """Every process of the present life, and every orphan."""
        return [*self._members, *self._orphans]

    def see(self, found: Belonging, titles: Mapping[Process, str], serving: bool) -> str:
        """Take in a look; what it proves of the life before, "" for nothing.

        An orphan may have inherited the listening socket: it begins a life only if the engine is
        `serving`, so that somebody answers there.
        """
        for process in self.running:
            known = self._members if process in self._members else self._orphans
            known[process] = titles.get(process, known[process])
        servers = set(found.servers)
        if not servers or (servers <= self._orphans.keys() and not serving):
            return ""
        proof = ""
        if self.servers and self.servers.isdisjoint(servers) and self.basis is found.basis is Basis.SOCKET:
            proof = f"{_listed(servers, titles)} listens where {_listed(self.servers, self._members)} did"
            self._bury()
        self.servers, self.basis, self.over_at = servers, found.basis, None
        for process in found.members:
            before = self._orphans.pop(process, process.name)
            self._members[process] = titles.get(process, self._members.get(process, before))
        return proof

    def end(self, process: Process, now: float) -> None:
        """A process has ended."""
        known = self._members if process in self._members else self._orphans
        title = known.pop(process, None)
        if title is None:
            return
        self._ended.append((now, f"process {process.pid} ({title})"))
        if process in self.servers:
            self.servers.discard(process)
            if not self.servers:
                self.over_at = now
                self._bury()

    def ended_lately(self, now: float) -> str:
        """What ended within the last seconds, in words; "" for nothing."""
        lately = [words for at, words in self._ended if now - at <= EXPLAINS_S]
        return f"{_some(lately)} ended" if lately else ""

    def forget_exits(self) -> None:
        """What ended so far explains nothing that comes."""
        self._ended.clear()

    def orphans(self) -> str:
        """Who outlived the server, and what to do; "" for nobody."""
        if not self._orphans:
            return ""
        some = _some([f"{title} (pid {process.pid})" for process, title in self._orphans.items()])
        many = len(self._orphans) > 1
        runs, ends = ("run and may hold", "them") if many else ("runs and may hold", "it")
        return f"orphaned: {some} still {runs} GPU memory; end {ends} before restarting"

    def _bury(self) -> None:
        """The life is over: who of it still runs is an orphan."""
        for process, title in self._members.items():
            if len(self._orphans) < MAX_ORPHANS:
                self._orphans[process] = title
        self._members.clear()
        self.servers = set()


def _listed(processes: Iterable[Process], titles: Mapping[Process, str]) -> str:
    ordered = sorted(processes, key=lambda each: each.pid)
    return _some([f"process {each.pid} ({titles.get(each, each.name)})" for each in ordered])


def _some(words: list[str]) -> str:
    more = len(words) - MAX_NAMED
    return ", ".join(words[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
