"""The whole agent, from READY to Goodbye."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import headrace_agent
from headrace_agent.collectors.containment import Mishaps, keep_running
from headrace_agent.collectors.readings import CellEvent
from headrace_agent.heartbeat.build import Identity
from headrace_agent.heartbeat.stream import ControllerStream, Handlers
from headrace_agent.service.gateways import Gateways
from headrace_agent.service.metrics import AgentMetrics, build_page, render
from headrace_agent.service.node import Node
from headrace_agent.service.notify import notify
from headrace_agent.service.sources import BuildSources, build_sources
from headrace_agent.service.watch import Watch
from headrace_agent.service.web import serving
from headrace_agent.settings import AgentSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.net import require_free
from headrace_shared.tasks import Supervisor

# A controller must not hear of a restarted agent's cells before the agent has looked at them: an
# engine that serves would seem to load. One that gives no sign is not waited for any longer.
FIRST_LOOK_S: Final = 3.0
# What remains of the two seconds that a stop may take is for the collectors to close.
GOODBYE_S: Final = 0.5


async def run(settings: AgentSettings, stop: asyncio.Event) -> None:
    """Run the agent until `stop` is set. Raises CannotListenError and TlsError before it starts."""
    await Agent(settings).run(stop)


class Agent:
    """One agent. Its incarnation is the moment it was made."""

    def __init__(
        self, settings: AgentSettings, clock: Clock | None = None, build: BuildSources = build_sources
    ) -> None:
        """Raises headrace_shared.tls.TlsError where a controller's TLS files cannot be used."""
        self._settings = settings
        self._clock = clock if clock is not None else SystemClock()
        self._log = log.get("agent")
        self._mishaps = Mishaps()
        self._sources = build(settings, self._clock, self._tell_all, self._xid, self._mishaps)
        identity = Identity(
            settings.node, settings.site, headrace_agent.__version__, incarnation=self._clock.wall_ns()
        )
        self._node = Node(settings, identity, self._sources, self._clock, self._mishaps)
        self._watch = Watch(self._node, self._clock, self._tell_all, self._tell_one)
        self._gateways = Gateways([str(each.address) for each in settings.controllers])
        handlers = Handlers(self._set_gateways, self._watch.drain, self._watch.undrain)
        self.streams = {
            str(each.address): ControllerStream(
                each, self._node, handlers, self._clock, mishaps=self._mishaps
            )
            for each in settings.controllers
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Collect and stream until `stop` is set, then say Goodbye. Raises CannotListenError."""
        listen = self._settings.metrics_listen
        if listen is not None:
            require_free("metrics_listen", listen)
        async with AsyncExitStack() as stack:
            supervisor = await stack.enter_async_context(Supervisor())
            if listen is not None:
                registry = build_page(
                    AgentMetrics(self._node, list(self.streams.values()), self._clock, self._mishaps)
                )
                await stack.enter_async_context(serving(listen, partial(render, registry), self._health))
            self._spawn(supervisor)
            self._announce()
            await supervisor.wait(stop)
            notify("STOPPING=1")
            await self._leave()
        self._log.info("agent stopped", node=self._settings.node)

    def _spawn(self, supervisor: Supervisor) -> None:
        """Start everything that watches; each part is kept running by itself."""
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            f"engine {cell_id}": engine.run for cell_id, engine in self._sources.engines.items()
        }
        parts |= {
            "hardware": self._sources.hardware.run,
            "paths": self._sources.paths.run,
            "watch": self._watch.run,
        }
        for part, run in parts.items():
            supervisor.spawn(part, keep_running(part, run, self._clock, self._mishaps))
        supervisor.spawn("first look", self._stream_after_first_look(supervisor))

    async def _stream_after_first_look(self, supervisor: Supervisor) -> None:
        try:
            async with asyncio.timeout(FIRST_LOOK_S):
                await self._node.first_look()
        except TimeoutError:
            self._log.warning("some engines give no sign yet; streaming without them")
        for stream in self.streams.values():
            supervisor.spawn(f"stream to {stream.name}", stream.run())

    def _announce(self) -> None:
        settings = self._settings
        notify("READY=1")
        self._log.info(
            "agent started",
            node=settings.node,
            site=settings.site,
            cells=[cell.id for cell in settings.cells],
            controllers=list(self.streams),
            metrics=str(settings.metrics_listen) if settings.metrics_listen else None,
        )

    async def _leave(self) -> None:
        """Goodbye to every controller that listens; the others are not waited for."""
        grace_s = self._settings.goodbye_grace_s
        leaves = [
            asyncio.create_task(stream.leave(True, grace_s, "stopped"), name=f"goodbye to {stream.name}")
            for stream in self.streams.values()
        ]
        _, late = await asyncio.wait(leaves, timeout=GOODBYE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*leaves, return_exceptions=True)

    def _tell_all(self, event: CellEvent) -> None:
        for stream in self.streams.values():
            stream.offer(event)

    def _tell_one(self, controller: str, event: CellEvent) -> None:
        self.streams[controller].offer(event)

    def _xid(self, uuid: str, xid: int) -> None:
        self._watch.xid(uuid, xid)

    def _set_gateways(self, controller: str, gateways: Sequence[pb.Gateway]) -> None:
        self._sources.paths.set_gateways(self._gateways.update(controller, gateways))

    def _health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "node": self._settings.node,
            "incarnation": self._node.identity.incarnation,
            "controllers": {stream.name: stream.connected for stream in self.streams.values()},
        }
