"""The streams to all controllers, each with a fate of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from headrace_agent.collectors.readings import CellEvent
from headrace_agent.heartbeat.stream import ControllerStream
from headrace_agent.settings import ControllerSettings
from headrace_shared.tasks import Supervisor

# What remains of the two seconds that a stop may take is for the collectors to close.
GOODBYE_S: Final = 0.5
DISMISSED: Final = "no longer in the agent's config"

OpenStream = Callable[[ControllerSettings, int], ControllerStream]
"""Makes a stream to a controller, whose last event id was the number."""


class Streams(Mapping[str, ControllerStream]):
    """By the controller's address, in the order of the settings."""

    def __init__(self, controllers: Sequence[ControllerSettings], open_stream: OpenStream) -> None:
        """Raises headrace_shared.tls.TlsError where a controller's TLS files cannot be used."""
        self._open = open_stream
        self._streams = {str(each.address): open_stream(each, 0) for each in controllers}
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._last_event_ids: dict[str, int] = {}
        self._supervisor: Supervisor | None = None

    def __getitem__(self, name: str) -> ControllerStream:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def connected(self) -> bool:
        """True while at least one controller answers."""
        return any(stream.connected for stream in self._streams.values())

    def start(self, supervisor: Supervisor) -> None:
        """Begin to stream."""
        self._supervisor = supervisor
        for name in self._streams:
            self._run(name)

    def tell_all(self, event: CellEvent) -> None:
        """Tell every controller; returns at once."""
        for stream in self._streams.values():
            stream.offer(event)

    def tell_one(self, controller: str, event: CellEvent) -> None:
        """Tell one controller; nothing where it is one no more."""
        if controller in self._streams:
            self._streams[controller].offer(event)

    def tell_facts(self, gone: Collection[str]) -> None:
        """What is said of the cells changed; those in `gone` are spoken for no more."""
        for stream in self._streams.values():
            stream.tell_facts(gone)

    def prepare(self, controllers: Sequence[ControllerSettings]) -> dict[str, ControllerStream]:
        """Streams for those that are not known yet; they do not run. Raises TlsError."""
        return {
            str(each.address): self._open(each, self._last_event_ids.get(str(each.address), 0))
            for each in controllers
            if str(each.address) not in self._streams
        }

    async def follow(
        self,
        controllers: Sequence[ControllerSettings],
        prepared: Mapping[str, ControllerStream],
        changed: Collection[str],
    ) -> None:
        """Keep to these controllers: `prepared` ones are dialled, `changed` ones dialled again, and
        those that are missing told that this agent's cells are theirs no more. The others notice
        nothing."""
        wanted = {str(each.address): each for each in controllers}
        gone = {name: stream for name, stream in self._streams.items() if name not in wanted}
        self._streams = {name: self._streams.get(name) or prepared[name] for name in wanted}
        for name in changed:
            await self._end(name)
            self._streams[name].retarget(wanted[name])
        for name in self._streams.keys() - self._tasks.keys():
            self._run(name)
        await _leave(gone.values(), planned=False, grace_s=0.0, reason=DISMISSED, withdraw=True)
        for name, stream in gone.items():
            self._last_event_ids[name] = stream.last_event_id
            await self._end(name)

    async def leave(self, grace_s: float) -> None:
        """A planned Goodbye to every controller that listens; the others are not waited for."""
        await _leave(self._streams.values(), planned=True, grace_s=grace_s, reason="stopped", withdraw=False)

    def _run(self, name: str) -> None:
        assert self._supervisor is not None, "start() comes first"
        self._tasks[name] = self._supervisor.spawn(f"stream to {name}", self._streams[name].run())

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _leave(
    streams: Collection[ControllerStream], *, planned: bool, grace_s: float, reason: str, withdraw: bool
) -> None:
    leaves = [
        asyncio.create_task(
            stream.leave(planned, grace_s, reason, withdraw), name=f"goodbye to {stream.name}"
        )
        for stream in streams
    ]
    if not leaves:
        return
    _, late = await asyncio.wait(leaves, timeout=GOODBYE_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*leaves, return_exceptions=True)
