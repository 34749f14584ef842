"""From healthy to serving: look at the page and the models, then adopt or warm up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.health.warmup import choose_model, complete, delays
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.errors import CallError
from headrace_agent.collectors.app.pages.figures import Figures
from headrace_agent.collectors.readings import Model
from headrace_agent.settings import EngineSettings
from headrace_shared.clock import Clock

# Without a page nobody knows whether an engine has served. It is not called loading before its page
# failed so often and for so long: an engine that serves would be taken out for one bad answer.
LOOKS: Final = 3
LOOK_FOR_S: Final = 3.0
LOOK_AGAIN_S: Final = 0.25
# For an engine that has served, and whose start time nobody knows or believes.
ASSUMED_UPTIME_S: Final = 3600.0
_PLAUSIBLE_UPTIME_S: Final = 10 * 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a starter does through the collector that owns it.

    `scrape` reads one page; `read_models` refreshes the facts and returns the models; `kind` is the
    engine's, "" while unknown, which decides how a completion is asked; `took`
    hands a change on; `warmed` is called when a completion was answered; `note` takes the
    warm-up's trouble, "" for none.
    """

    scrape: Callable[[], Awaitable[Figures | None]]
    read_models: Callable[[], Awaitable[Sequence[Model]]]
    kind: Callable[[], str]
    took: Callable[[Change | None], None]
    warmed: Callable[[], None]
    note: Callable[[str], None]


class Starter:
    """Takes an engine that awaits it to SERVING; `needed` wakes it."""

    def __init__(
        self,
        client: EngineClient,
        health: EngineHealth,
        settings: EngineSettings,
        clock: Clock,
        needed: asyncio.Event,
        around: Surroundings,
    ) -> None:
        self._client = client
        self._health = health
        self._settings = settings
        self._clock = clock
        self._needed = needed
        self._around = around

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._needed.wait()
            self._needed.clear()
            if self._health.awaiting:
                await self._start()

    async def ask(self) -> None:
        """Ask one completion of the engine, whatever its state. Raises CallError."""
        await self._complete(await self._around.read_models())

    async def _complete(self, models: Sequence[Model]) -> None:
        timeout_s = self._settings.warm_up_timeout_s
        await complete(self._client, choose_model(models), timeout_s, self._around.kind())

    async def _start(self) -> None:
        life = self._health.life
        figures = await self._look(life)
        models = await self._around.read_models()
        now = self._clock.now()
        if self._lost(life):
            return
        if figures is not None and figures.has_served:
            since = serving_since(figures.started_at, self._clock)
            self._around.took(self._health.adopt(since, now))
        self._around.took(self._health.begin(now))
        if self._settings.warm_up:
            await self._warm_up(life, models)
        else:
            self._around.took(self._health.answered(life, "healthy; the warm-up is switched off", now))

    async def _look(self, life: int) -> Figures | None:
        """The engine's page, None where it cannot be had.

        On first sight of an engine, which is when it can be adopted, it is asked for again while it
        does not tell whether the engine has served.
        """
        began, looks = self._clock.now(), 0
        while True:
            figures = await self._around.scrape()
            looks += 1
            if figures is not None and figures.has_served is not None:
                return figures
            given_up = looks >= LOOKS and self._clock.now() - began >= LOOK_FOR_S
            if given_up or self._health.state is not None or self._lost(life):
                return figures
            await asyncio.sleep(LOOK_AGAIN_S)

    def _lost(self, life: int) -> bool:
        return life != self._health.life or not self._health.awaiting

    async def _warm_up(self, life: int, models: Sequence[Model]) -> None:
        for delay in delays():
            if self._lost(life):
                return
            trouble = await self._try(models)
            self._around.note(trouble)
            if not trouble:
                self._around.warmed()
                now = self._clock.now()
                self._around.took(self._health.answered(life, "healthy, and a completion was answered", now))
                return
            await asyncio.sleep(delay)
            models = await self._around.read_models()

    async def _try(self, models: Sequence[Model]) -> str:
        """Ask one completion; what went wrong, "" for nothing."""
        try:
            await self._complete(models)
        except CallError as error:
            return str(error)
        return ""


def serving_since(started_at: float | None, clock: Clock) -> float:
    """When an engine that has served began to, on `clock`; `started_at`: seconds since the epoch."""
    uptime = clock.wall_ns() / 1e9 - started_at if started_at is not None else -1.0
    plausible = 0 <= uptime <= _PLAUSIBLE_UPTIME_S
    return clock.now() - (uptime if plausible else ASSUMED_UPTIME_S)
