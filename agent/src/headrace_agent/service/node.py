"""What this node says of itself: its cells' readings, put together at the moment of asking."""

from __future__ import annotations

from headrace_agent.collectors.readings import EngineReading, HardwareReading
from headrace_agent.heartbeat.build import CellReading, Identity, build_hello, build_telemetry
from headrace_agent.service.sources import Sources
from headrace_agent.settings import AgentSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.clock import Clock


class Node:
    """Implements headrace_agent.heartbeat.outbox.Reporter over the collectors."""

    def __init__(self, settings: AgentSettings, identity: Identity, sources: Sources, clock: Clock) -> None:
        self.identity = identity
        self._cells = {cell.id: cell for cell in settings.cells}
        self._sources = sources
        self._clock = clock

    def __contains__(self, cell_id: str) -> bool:
        return cell_id in self._cells

    @property
    def cell_ids(self) -> tuple[str, ...]:
        """In the order of the settings file."""
        return tuple(self._cells)

    def engine(self, cell_id: str) -> EngineReading:
        """One cell's engine, now."""
        return self._sources.engines[cell_id].reading(self._clock.now())

    def hardware(self, cell_id: str) -> HardwareReading:
        """The GPUs under one cell, now."""
        return self._sources.hardware.reading(self._cells[cell_id].gpus, self._clock.now())

    def readings(self, now: float) -> list[CellReading]:
        """Every cell, at `now`."""
        return [
            CellReading(
                cell,
                self._sources.engines[cell.id].reading(now),
                self._sources.hardware.reading(cell.gpus, now),
            )
            for cell in self._cells.values()
        ]

    def cells_on(self, uuid: str) -> list[str]:
        """The cells that run on a GPU, however their settings name it."""
        return [
            cell.id
            for cell in self._cells.values()
            if uuid in [gpu.uuid for gpu in self.hardware(cell.id).gpus]
        ]

    def hello(self) -> pb.Hello:
        """Who speaks, and all its cells' facts."""
        return build_hello(self.identity, self.readings(self._clock.now()))

    def telemetry(self) -> pb.Telemetry:
        """A full beat; a cell of which nothing is known yet is left out, not called LOADING."""
        now = self._clock.now()
        engines = self._sources.engines
        seen = [each for each in self.readings(now) if engines[each.cell.id].first_seen.is_set()]
        return build_telemetry(seen, self._sources.paths.readings(now), now)

    async def first_look(self) -> None:
        """Return when every engine has been seen once."""
        for engine in self._sources.engines.values():
            await engine.first_seen.wait()
