"""The processes of this host at one moment, and how they descend from each other. No files here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Process:
    """One process that runs; anybody may read all of this.

    `started` is when, in clock ticks since boot: pids are used again, a pid with its start is not,
    and these two make two readings the same process. `name` is the kernel's, of at most 15
    characters; `user` is the number of the user it runs as.
    """

    pid: int
    parent: int = field(compare=False)
    started: int
    name: str = field(default="", compare=False)
    user: int = field(default=-1, compare=False)


class ProcessTable:
    """Processes by pid; ended ones that nobody has waited for are not among them."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._processes: Mapping[int, Process] = {each.pid: each for each in processes}
        self._children: dict[int, list[Process]] = {}
        for each in self._processes.values():
            self._children.setdefault(each.parent, []).append(each)

    def __iter__(self) -> Iterator[Process]:
        return iter(self._processes.values())

    def __len__(self) -> int:
        return len(self._processes)

    def get(self, pid: int) -> Process | None:
        """The process that has this pid now."""
        return self._processes.get(pid)

    def has(self, process: Process) -> bool:
        """Whether this very process still runs; another one with its pid is not it."""
        return self._processes.get(process.pid) == process

    def descendants(self, pid: int) -> list[Process]:
        """Children, their children, and so on; the nearest first."""
        found: list[Process] = []
        seen, level = {pid}, [pid]
        while level:
            born = [child for parent in level for child in self._children.get(parent, ())]
            born = [child for child in born if child.pid not in seen]
            seen.update(child.pid for child in born)
            found += born
            level = [child.pid for child in born]
        return found

    def ancestors(self, pid: int) -> list[Process]:
        """Parent, its parent, and so on, as far as they can be seen."""
        found: list[Process] = []
        seen, at = {pid}, self._processes.get(pid)
        while at is not None and at.parent not in seen:
            seen.add(at.parent)
            at = self._processes.get(at.parent)
            if at is not None:
                found.append(at)
        return found

    def topmost(self, pids: Iterable[int]) -> list[Process]:
        """Of these processes those that descend from none of the others."""
        among = set(pids)
        tops = [pid for pid in sorted(among) if among.isdisjoint(a.pid for a in self.ancestors(pid))]
        return [process for pid in tops if (process := self._processes.get(pid)) is not None]
