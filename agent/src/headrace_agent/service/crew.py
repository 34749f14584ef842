"""The collectors at work, and how they are exchanged while the agent runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from headrace_agent.collectors.containment import Mishaps, keep_running
from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_agent.collectors.readings import CellEvent, HardwareSource
from headrace_agent.service.difference import Difference, Fate
from headrace_agent.service.sources import BuildSources, Hardware, OnEvent, OnXid, Paths, Sources
from headrace_agent.settings import AgentSettings
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.tasks import Supervisor

# How long the old collectors go on for the sake of new ones that give no sign. An engine that
# hangs gives one after `hung_after_s`.
LOOK_S: Final = 3.0
LOOK_SLACK_S: Final = 1.0
LOOK_AGAIN_S: Final = 0.05
# A collector that does not end is left to its cancellation.
STOP_S: Final = 3.0


Wait = Callable[[], Coroutine[Any, Any, None]]


class Collector(Protocol):
    """What all collectors have."""

    async def run(self) -> None: ...


class Crew:
    """Runs the collectors of one agent.

    What was built and does not speak (yet, or any more) runs unheard: the events of two collectors
    of one cell never mix.
    """

    def __init__(
        self,
        settings: AgentSettings,
        clock: Clock,
        build: BuildSources,
        on_event: OnEvent,
        on_xid: OnXid,
        mishaps: Mishaps,
    ) -> None:
        self._clock = clock
        self._build = build
        self._on_event = on_event
        self._on_xid = on_xid
        self._mishaps = mishaps
        self._builds = 0
        self._tasks: dict[Collector, asyncio.Task[Any]] = {}
        self._supervisor: Supervisor | None = None
        self._log = log.get("agent")
        self._speaker: dict[str, int] = {}
        self._hardware_speaker = 0
        self.sources = self._build_next(settings)
        self._speaker = dict.fromkeys(self.sources.engines, self._builds)
        self._hardware_speaker = self._builds

    def start(self, supervisor: Supervisor) -> None:
        """Start all; each part is kept running by itself."""
        self._supervisor = supervisor
        for cell_id, engine in self.sources.engines.items():
            self._start(f"engine {cell_id}", engine)
        self._start("hardware", self.sources.hardware)
        self._start("paths", self.sources.paths)

    async def exchange(
        self,
        new: AgentSettings,
        change: Difference,
        gateways: Sequence[GatewayTarget],
        switch: Callable[[Sources], None],
    ) -> None:
        """Make the collectors those of `new`.

        What takes another's place works beside it until it has figures, for a bounded time. Then
        `switch(sources)` is called, once, and all that is needed no more is stopped.
        """
        old, fresh = self.sources, self._build_next(new)
        sources = _merge(old, fresh, change)
        newcomers = self._start_replacements(fresh, change)
        fresh.paths.set_gateways(gateways)
        try:
            await self._look(old, fresh, new, change)
        except BaseException:
            await self._stop(newcomers)
            raise
        self._give_word(sources, fresh)
        self.sources = sources
        switch(sources)
        for cell_id in change.added:
            self._start(f"engine {cell_id}", sources.engines[cell_id])
        await self._stop(_left_over(old, sources))
        await self._retune(fresh, change.having(Fate.RETUNED))

    def _build_next(self, settings: AgentSettings) -> Sources:
        self._builds += 1
        number = self._builds
        return self._build(
            settings, self._clock, partial(self._heard, number), partial(self._xid, number), self._mishaps
        )

    def _heard(self, number: int, event: CellEvent) -> None:
        if self._speaker.get(event.cell_id) == number:
            self._on_event(event)

    def _xid(self, number: int, uuid: str, xid: int) -> None:
        if self._hardware_speaker == number:
            self._on_xid(uuid, xid)

    def _give_word(self, sources: Sources, fresh: Sources) -> None:
        """From now on each cell's events are those of the collector that stands in `sources`."""
        self._speaker = {
            cell_id: self._builds if engine is fresh.engines[cell_id] else self._speaker[cell_id]
            for cell_id, engine in sources.engines.items()
        }
        if sources.hardware is fresh.hardware:
            self._hardware_speaker = self._builds

    def _start_replacements(self, fresh: Sources, change: Difference) -> list[Collector]:
        parts: dict[str, Collector] = {
            f"engine {cell_id}": fresh.engines[cell_id] for cell_id in change.having(Fate.REPLACED)
        }
        if change.hardware:
            parts["hardware"] = fresh.hardware
        if change.network:
            parts["paths"] = fresh.paths
        for part, collector in parts.items():
            self._start(part, collector)
        return list(parts.values())

    async def _look(self, old: Sources, fresh: Sources, new: AgentSettings, change: Difference) -> None:
        """Wait until every replacement says at least as much as what it replaces."""
        replaced = change.having(Fate.REPLACED)
        gpus = [*(cell.gpus for cell in new.cells if cell.gpus), *(each.gpus for each in new.members)]
        waits: dict[str, Wait] = {
            "engines": _seen(fresh, replaced),
            "hardware": self._until(lambda now: _shows(old.hardware, fresh.hardware, gpus, now)),
            "paths": self._until(lambda now: _measures(old.paths, fresh.paths, now)),
        }
        bound_s = max(LOOK_S, new.engine.hung_after_s + LOOK_SLACK_S) if replaced else LOOK_S
        wanted = (bool(replaced), change.hardware, change.network and new.network.method != "off")
        tasks = [
            asyncio.create_task(wait(), name=f"first look: {what}")
            for (what, wait), needed in zip(waits.items(), wanted, strict=True)
            if needed
        ]
        if not tasks:
            return
        try:
            _, late = await asyncio.wait(tasks, timeout=bound_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if late:
            self._log.warning("some new collectors give no sign yet; going on with them", waited_s=bound_s)

    def _until(self, condition: Callable[[float], bool]) -> Wait:
        async def wait() -> None:
            while not condition(self._clock.now()):  # noqa: ASYNC110 (figures come from threads and sockets)
                await asyncio.sleep(LOOK_AGAIN_S)

        return wait

    async def _retune(self, fresh: Sources, cells: Iterable[str]) -> None:
        for cell_id in cells:
            engine = self.sources.engines[cell_id]
            await self._stop([engine])
            engine.retune(fresh.engines[cell_id])
            self._start(f"engine {cell_id}", engine)

    def _start(self, part: str, collector: Collector) -> None:
        assert self._supervisor is not None, "start() comes first"
        run = keep_running(part, collector.run, self._clock, self._mishaps)
        self._tasks[collector] = self._supervisor.spawn(part, run)

    async def _stop(self, collectors: Iterable[Collector]) -> None:
        tasks = [self._tasks.pop(each) for each in collectors if each in self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_S)


def _merge(old: Sources, fresh: Sources, change: Difference) -> Sources:
    stays = {cell_id for cell_id, fate in change.fates.items() if fate is not Fate.REPLACED}
    return replace(
        old,
        engines={
            cell_id: old.engines[cell_id] if cell_id in stays else engine
            for cell_id, engine in fresh.engines.items()
        },
        hardware=fresh.hardware if change.hardware else old.hardware,
        paths=fresh.paths if change.network else old.paths,
    )


def _left_over(old: Sources, now: Sources) -> list[Collector]:
    engines = [engine for cell_id, engine in old.engines.items() if now.engines.get(cell_id) is not engine]
    others: list[Collector] = [old.hardware] if now.hardware is not old.hardware else []
    others += [old.paths] if now.paths is not old.paths else []
    return [*engines, *others]


def _seen(fresh: Sources, cells: Sequence[str]) -> Wait:
    async def wait() -> None:
        for cell_id in cells:
            await fresh.engines[cell_id].first_seen.wait()

    return wait


def _shows(old: Hardware, fresh: Hardware, gpus: Sequence[tuple[str | int, ...]], now: float) -> bool:
    """Whether `fresh` has figures for all GPUs for which `old` has."""
    return all(
        fresh.reading(each, now).source is not HardwareSource.NONE
        for each in gpus
        if old.reading(each, now).source is not HardwareSource.NONE
    )


def _measures(old: Paths, fresh: Paths, now: float) -> bool:
    """Whether `fresh` knows the way to all gateways to which `old` does."""
    known, wanted = (
        {path.gateway for path in paths.readings(now) if path.rtt_ms is not None} for paths in (fresh, old)
    )
    return wanted <= known
