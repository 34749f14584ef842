"""The whole agent, from READY to Goodbye."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import headrace_agent
from headrace_agent.collectors.containment import Mishaps, keep_running
from headrace_agent.collectors.readings import CellEvent
from headrace_agent.heartbeat.build import Identity
from headrace_agent.heartbeat.stream import ControllerStream, Handlers
from headrace_agent.service.crew import Crew
from headrace_agent.service.difference import Difference, Fate, compare
from headrace_agent.service.gateways import Gateways
from headrace_agent.service.health import Health, Phase
from headrace_agent.service.metrics import AgentMetrics, build_page, render
from headrace_agent.service.node import Node
from headrace_agent.service.notify import notify, notify_ready
from headrace_agent.service.pulse import Pulse
from headrace_agent.service.reload import Load, Reloader
from headrace_agent.service.sources import BuildSources, SourceBuilder, Sources
from headrace_agent.service.streams import Streams
from headrace_agent.service.watch import Watch
from headrace_agent.service.web import serving
from headrace_agent.settings import AgentSettings, ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.net import require_free
from headrace_shared.tasks import Supervisor

# A controller must not hear of a restarted agent's cells before the agent has looked at them: an
# engine that serves would seem to load. One that gives no sign is not waited for any longer.
FIRST_LOOK_S: Final = 3.0


async def run(
    settings: AgentSettings,
    stop: asyncio.Event,
    reload_asked: asyncio.Event | None = None,
    load: Load | None = None,
) -> None:
    """Run the agent until `stop` is set; whenever `reload_asked` is set, take up what `load` gives.

    Raises CannotListenError and TlsError before it starts.
    """
    await Agent(settings, load=load).run(stop, reload_asked)


class Agent:
    """One agent. Its incarnation is the moment it was made."""

    def __init__(
        self,
        settings: AgentSettings,
        clock: Clock | None = None,
        build: BuildSources | None = None,
        load: Load | None = None,
    ) -> None:
        """Raises headrace_shared.tls.TlsError where a controller's TLS files cannot be used."""
        self.settings = settings
        self._clock = clock if clock is not None else SystemClock()
        self._load = load
        self._log = log.get("agent")
        self._mishaps = Mishaps()
        build = build if build is not None else SourceBuilder()
        self._crew = Crew(settings, self._clock, build, self._tell_all, self._xid, self._mishaps)
        identity = Identity(
            settings.node, settings.site, headrace_agent.__version__, incarnation=self._clock.wall_ns()
        )
        self._node = Node(settings, identity, self._crew.sources, self._clock, self._mishaps)
        self._watch = Watch(self._node, self._clock, self._tell_all, self._tell_one)
        self._gateways = Gateways([str(each.address) for each in settings.controllers])
        self._phase = Phase()
        self._pulse = Pulse(self._clock)
        self.streams = Streams(settings.controllers, self._open_stream)

    async def run(self, stop: asyncio.Event, reload_asked: asyncio.Event | None = None) -> None:
        """Collect and stream until `stop` is set, then say Goodbye. Raises CannotListenError."""
        listen = self.settings.metrics_listen
        if listen is not None:
            require_free("metrics_listen", listen)
        asked = reload_asked if reload_asked is not None else asyncio.Event()
        reloader = Reloader(self._load, asked, self._clock, self._mishaps)
        async with AsyncExitStack() as stack:
            supervisor = await stack.enter_async_context(Supervisor())
            await self._open_pages(stack, reloader)
            self._crew.start(supervisor)
            for part, work in (("watch", self._watch.run), ("pulse", self._pulse.run)):
                supervisor.spawn(part, keep_running(part, work, self._clock, self._mishaps))
            following = supervisor.spawn("controllers and reloads", self._follow(supervisor, reloader))
            self._announce()
            await supervisor.wait(stop)
            await self._leave(following)
        self._log.info("agent stopped", node=self.settings.node)

    async def apply(self, new: AgentSettings) -> None:
        """Put other settings in force; what they leave as it was is not touched.

        Raises FixedFieldError and TlsError, and nothing is changed then.
        """
        change = compare(self.settings, new)
        prepared = self.streams.prepare(new.controllers)
        await self._crew.exchange(new, change, self._gateways.union, partial(self._switch, new, change))
        await self.streams.follow(new.controllers, prepared, change.controllers_changed)
        self._log.info("settings reloaded", config=self.config_hash, **_said(change))

    @property
    def config_hash(self) -> str:
        """Twelve letters that are the same on two agents if their settings in force are."""
        return hashlib.sha256(self.settings.model_dump_json().encode()).hexdigest()[:12]

    def _switch(self, new: AgentSettings, change: Difference, sources: Sources) -> None:
        """The one moment from which on the new settings count."""
        if change.log:
            log.configure(new.log.level, new.log.format)
        self.settings = new
        self._node.adopt(new, sources)
        self._watch.forget(cells=change.removed)
        for cell_id in change.removed:
            self._mishaps.forget(f"engine {cell_id}", f"reading of {cell_id}")
        for controller in change.controllers_removed:
            self._watch.forget(controller=controller)
            self._mishaps.forget(f"stream to {controller}")
        self._gateways.follow([str(each.address) for each in new.controllers])
        sources.paths.set_gateways(self._gateways.union)
        self.streams.tell_facts(gone=change.removed)
        self._warn()

    def _open_stream(self, settings: ControllerSettings, last_event_id: int) -> ControllerStream:
        handlers = Handlers(self._set_gateways, self._watch.drain, self._watch.undrain)
        return ControllerStream(
            settings,
            self._node,
            handlers,
            self._clock,
            mishaps=self._mishaps,
            last_event_id=last_event_id,
        )

    async def _open_pages(self, stack: AsyncExitStack, reloader: Reloader) -> None:
        listen = self.settings.metrics_listen
        if listen is None:
            return
        health = Health(self._phase, self._pulse, self.streams, reloader, self._mishaps, self._clock)
        own = AgentMetrics(
            self._node, self.streams, self._clock, self._mishaps, reloader, lambda: self.config_hash
        )
        pages = serving(
            listen,
            partial(render, build_page(own)),
            lambda: health.live(self._details()),
            lambda: health.ready(self._details()),
        )
        await stack.enter_async_context(pages)

    async def _follow(self, supervisor: Supervisor, reloader: Reloader) -> None:
        """Stream from the first look on; from then on a reload may change anything."""
        try:
            async with asyncio.timeout(FIRST_LOOK_S):
                await self._node.first_look()
        except TimeoutError:
            self._log.warning("some engines give no sign yet; streaming without them")
        self._phase.looked = True
        self.streams.start(supervisor)
        await reloader.run(self, self._status)

    def _announce(self) -> None:
        settings = self.settings
        notify_ready(self._status())
        self._log.info(
            "agent started",
            node=settings.node,
            site=settings.site,
            cells=[cell.id for cell in settings.cells],
            controllers=list(self.streams),
            metrics=str(settings.metrics_listen) if settings.metrics_listen else None,
            config=self.config_hash,
        )
        self._warn()

    def _warn(self) -> None:
        for warning in self.settings.warnings():
            self._log.warning("settings", warning=warning)

    def _status(self) -> str:
        settings = self.settings
        return (
            f"node {settings.node}: {len(settings.cells)} cells, {len(settings.controllers)} controllers, "
            f"config {self.config_hash}"
        )

    async def _leave(self, following: asyncio.Task[Any]) -> None:
        """Goodbye to all controllers. A reload that is under way is given up first: it must not dial
        anew what has been taken leave of."""
        notify("STOPPING=1")
        self._phase.leaving = True
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await self.streams.leave(self.settings.goodbye_grace_s)

    def _tell_all(self, event: CellEvent) -> None:
        self.streams.tell_all(event)

    def _tell_one(self, controller: str, event: CellEvent) -> None:
        self.streams.tell_one(controller, event)

    def _xid(self, uuid: str, xid: int) -> None:
        self._watch.xid(uuid, xid)

    def _set_gateways(self, controller: str, gateways: Sequence[pb.Gateway]) -> None:
        self._crew.sources.paths.set_gateways(self._gateways.update(controller, gateways))

    def _details(self) -> dict[str, Any]:
        return {
            "node": self.settings.node,
            "incarnation": self._node.identity.incarnation,
            "config": self.config_hash,
        }


def _said(change: Difference) -> dict[str, list[str]]:
    """What a reload changed, for the log; what it did not is left out."""
    parts = {
        "cells_added": change.added,
        "cells_removed": change.removed,
        "cells_retuned": change.having(Fate.RETUNED),
        "cells_replaced": change.having(Fate.REPLACED),
        "controllers_added": change.controllers_added,
        "controllers_removed": change.controllers_removed,
        "controllers_changed": change.controllers_changed,
        "sections": [name for name in ("hardware", "network", "log") if getattr(change, name)],
    }
    return {name: list(values) for name, values in parts.items() if values}
