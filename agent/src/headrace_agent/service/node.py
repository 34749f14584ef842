"""What this node says of itself: its cells' readings, put together at the moment of asking."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Final

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import (
    EngineReading,
    EngineState,
    HardwareReading,
    PathReading,
    SourceReading,
    Status,
    Tally,
)
from headrace_agent.heartbeat.build import (
    CellReading,
    Identity,
    MemberReading,
    build_hello,
    build_telemetry,
)
from headrace_agent.service.sources import Sources
from headrace_agent.settings import AgentSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.clock import Clock

LOOK_INTERVAL_S: Final = 0.02


class Node:
    """Implements headrace_agent.heartbeat.outbox.Reporter over the collectors.

    A collector that cannot give a reading costs the figures of its own cell: the cell's source is
    FAILED, and what was known of it and its engine's state are given on.
    """

    def __init__(
        self, settings: AgentSettings, identity: Identity, sources: Sources, clock: Clock, mishaps: Mishaps
    ) -> None:
        self.identity = identity
        self._clock = clock
        self._mishaps = mishaps
        self._engines: dict[str, EngineReading] = {}
        self._hardware: dict[str, HardwareReading] = {}
        self.adopt(settings, sources)

    def adopt(self, settings: AgentSettings, sources: Sources) -> None:
        """Speak for what `settings` name from now on, out of `sources`."""
        self._cells = {cell.id: cell for cell in settings.cells}
        self._gpus = {cell.id: cell.gpus for cell in settings.cells}
        self._members = tuple(member.cell for member in settings.members)
        self._gpus |= {member.cell: member.gpus for member in settings.members}
        self._sources = sources
        self._read_at = math.nan
        self._read: list[CellReading] = []
        self._hello: pb.Hello | None = None
        self._facts: list[object] = []
        for known in (self._engines, self._hardware):
            for cell_id in known.keys() - self._gpus.keys():
                del known[cell_id]

    def __contains__(self, cell_id: str) -> bool:
        return cell_id in self._cells

    @property
    def cell_ids(self) -> tuple[str, ...]:
        """The cells with an engine on this host, in the order of the settings file."""
        return tuple(self._cells)

    @property
    def cells_with_gpus(self) -> tuple[str, ...]:
        """The cells of `cell_ids`, and those of other nodes that have GPUs of this host."""
        return tuple(self._gpus)

    def engine(self, cell_id: str, now: float | None = None) -> EngineReading:
        """One cell's engine, now or at `now`."""
        engine, part = self._sources.engines[cell_id], f"reading of {cell_id}: engine"
        try:
            reading = engine.reading(self._clock.now() if now is None else now)
        except Exception as error:  # noqa: BLE001 - one cell's trouble stays its own
            return self._without_figures(cell_id, engine.state, self._mishaps.note(part, error))
        self._mishaps.clear(part)
        self._engines[cell_id] = reading
        return reading

    def hardware(self, cell_id: str, now: float | None = None) -> HardwareReading:
        """This host's GPUs under one cell, now or at `now`."""
        part = f"reading of {cell_id}: hardware"
        try:
            reading = self._sources.hardware.reading(
                self._gpus[cell_id], self._clock.now() if now is None else now
            )
        except Exception as error:  # noqa: BLE001 - one cell's trouble stays its own
            failed = SourceReading("hardware", Status.FAILED, detail=self._mishaps.note(part, error))
            known = self._hardware.get(cell_id, HardwareReading())
            return HardwareReading(gpus=known.gpus, sources=(failed,))
        self._mishaps.clear(part)
        self._hardware[cell_id] = reading
        return reading

    def readings(self, now: float) -> list[CellReading]:
        """Every cell, at `now`; a Hello and the beat after it are made of the same."""
        if now != self._read_at:
            self._read_at = now
            self._read = [
                CellReading(cell, self.engine(cell.id, now), self.hardware(cell.id, now))
                for cell in self._cells.values()
            ]
        return self._read

    def members(self, now: float) -> list[MemberReading]:
        """This host's GPUs under other nodes' cells, at `now`."""
        return [MemberReading(cell_id, self.hardware(cell_id, now)) for cell_id in self._members]

    def paths(self, now: float) -> tuple[PathReading, ...]:
        """Every path, at `now`."""
        try:
            paths = self._sources.paths.readings(now)
        except Exception as error:  # noqa: BLE001 - the cells' figures go on without the paths'
            self._mishaps.note("reading of the paths", error)
            return ()
        self._mishaps.clear("reading of the paths")
        return paths

    def tallies(self) -> dict[tuple[str, str], Tally]:
        """(source, cell) -> how often it was read; the cell is empty for what serves the whole host."""
        found = {
            (source, cell_id): tally
            for cell_id, engine in self._sources.engines.items()
            for source, tally in engine.tallies().items()
        }
        return found | {(source, ""): tally for source, tally in self._sources.hardware.tallies().items()}

    def _without_figures(self, cell_id: str, state: EngineState | None, why: str) -> EngineReading:
        known = self._engines.get(cell_id, EngineReading(EngineState.LOADING))
        state = state or EngineState.LOADING
        return replace(
            known,
            state=state,
            signals={},
            in_flight=None,
            totals=None,
            work=None,
            serving_since=known.serving_since if state is known.state else None,
            source=SourceReading(known.source.name, Status.FAILED, known.source.read_at, why),
        )

    def cells_on(self, uuid: str) -> list[str]:
        """The cells that run on a GPU of this host, however their settings name it."""
        return [
            cell_id
            for cell_id in self.cells_with_gpus
            if uuid in [gpu.uuid for gpu in self.hardware(cell_id).gpus]
        ]

    def hello(self, now: float) -> pb.Hello:
        """Who speaks, and all its cells' facts. While no fact changes it is the same message."""
        readings, members = self.readings(now), self.members(now)
        facts: list[object] = [(each.engine.facts, each.hardware.gpus) for each in readings]
        facts += [each.hardware.gpus for each in members]
        if self._hello is None or facts != self._facts:
            self._hello, self._facts = build_hello(self.identity, readings, members), facts
        return self._hello

    def telemetry(self, now: float) -> pb.Telemetry:
        """A full beat; a cell of which nothing is known yet is left out, not called LOADING."""
        engines = self._sources.engines
        seen = [each for each in self.readings(now) if engines[each.cell.id].first_seen.is_set()]
        return build_telemetry(seen, self.paths(now), now, self.members(now))

    async def first_look(self) -> None:
        """Return when every engine has been seen once, and, where GPUs are all that a member has to
        tell, every hardware source has been asked once."""
        for engine in self._sources.engines.values():
            await engine.first_seen.wait()
        tallies = self._sources.hardware.tallies
        while self._members and not all(each.tries for each in tallies().values()):  # noqa: ASYNC110 (counts only)
            await asyncio.sleep(LOOK_INTERVAL_S)
