"""An agent under reload: fake collectors of every build, each of which tells what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import EngineFacts, EngineReading, EngineState, Model
from headrace_agent.service import Agent
from headrace_agent.service.sources import OnEvent, OnXid, Sources
from headrace_agent.settings import AgentSettings
from headrace_shared.clock import Clock, SystemClock
from tests.integration.agent_heartbeat.controller import settle, until
from tests.support.agent_sources import FakeEngine, FakeHardware, FakePaths

SERVES = EngineReading(
    EngineState.SERVING,
    signals={"queue_depth": 1.0, "kv_fill": 0.2},
    in_flight=1,
    serving_since=SystemClock().now() - 600,
    facts=EngineFacts("vllm", "0.32.0", (Model("m", 4096),)),
)


class Tracked:
    """How often a collector was started and ended."""

    starts = 0
    ends = 0

    async def run(self) -> None:
        self.starts += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ends += 1

    @property
    def at_work(self) -> bool:
        return self.starts > self.ends


class Engine(Tracked, FakeEngine):
    """`retuned_by` holds the collectors whose settings it took."""

    def __init__(self) -> None:
        super().__init__()
        self.now = SERVES
        self.retuned_by: list[object] = []

    def retune(self, fresh: object) -> None:
        assert not self.at_work
        self.retuned_by.append(fresh)


class Hardware(Tracked, FakeHardware):
    pass


class Paths(Tracked, FakePaths):
    pass


@dataclass(frozen=True)
class Built:
    """What one build made, and where it would send its news."""

    engines: dict[str, Engine]
    hardware: Hardware
    paths: Paths
    on_event: OnEvent
    on_xid: OnXid


class Crews:
    """Pass it to an Agent as `build`; every build is kept. Engines named in `unseen` give no sign."""

    def __init__(self) -> None:
        self.built: list[Built] = []
        self.unseen: set[str] = set()

    def __call__(
        self, settings: AgentSettings, clock: Clock, on_event: OnEvent, on_xid: OnXid, mishaps: Mishaps
    ) -> Sources:
        made = Built({cell.id: Engine() for cell in settings.cells}, Hardware(), Paths(), on_event, on_xid)
        for cell_id in self.unseen & made.engines.keys():
            made.engines[cell_id].first_seen.clear()
        self.built.append(made)
        return Sources(made.engines, made.hardware, made.paths)

    @property
    def first(self) -> Built:
        return self.built[0]

    @property
    def last(self) -> Built:
        return self.built[-1]


@dataclass
class Running:
    """An agent, its file's content, and the reloads that it did."""

    agent: Agent
    crews: Crews
    stop: asyncio.Event
    asked: asyncio.Event
    task: asyncio.Task[None]
    file: AgentSettings

    async def reload(self, new: AgentSettings) -> None:
        """Change the file, ask for a reload, and wait until it is in force."""
        self.file = new
        self.asked.set()
        await until(lambda: self.agent.settings == new)


def settings_for(*ports: int, cells: Any = ("c1", "c2"), **more: Any) -> AgentSettings:
    """Two cells and these controllers, unless told otherwise; a cell is an id, or all its keys."""
    entries = [
        each if isinstance(each, dict) else {"id": each, "url": f"http://127.0.0.1:80{each[1:]:0>2}"}
        for each in cells
    ]
    controllers = [{"address": f"127.0.0.1:{port}"} for port in ports]
    base = {"node": "host-1", "site": "berlin", "controllers": controllers, "cells": entries}
    return AgentSettings.model_validate(base | more)


@asynccontextmanager
async def running(settings: AgentSettings) -> AsyncIterator[Running]:
    """An agent that runs while the context is open and has ended in order afterwards."""
    crews, stop, asked = Crews(), asyncio.Event(), asyncio.Event()
    held: list[Running] = []
    agent = Agent(settings, build=crews, load=lambda: held[0].file)
    task = asyncio.create_task(agent.run(stop, asked), name="agent under reload")
    held.append(Running(agent, crews, stop, asked, task, settings))
    try:
        await until(lambda: all(stream.connected for stream in agent.streams.values()))
        yield held[0]
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await task
        await settle()
