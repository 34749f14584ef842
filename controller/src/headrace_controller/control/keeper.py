"""Keeps the fleet on disk as it changes."""

from __future__ import annotations

import asyncio

from headrace_controller.control.kept_fleet import KeptCell, KeptFleet, KeptFleetStore, KeptModel
from headrace_controller.control.loop import ControlLoop
from headrace_controller.lifecycle import CellState

INTERVAL_S = 1.0
WRITE_TIMEOUT_S = 10.0


class Keeper:
    """Writes the fleet at most once per `INTERVAL_S`, and only when it differs from the last one.

    The disk may hang: a write is waited for, in a thread, and none is started before the last has
    ended. What is lost then is the warm start, never the traffic.
    """

    def __init__(self, store: KeptFleetStore, loop: ControlLoop, region: str) -> None:
        self._store = store
        self._loop = loop
        self._region = region
        self._last: KeptFleet | None = None

    async def run(self) -> None:
        """Keep writing until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            fleet = self.snapshot()
            if fleet is None or fleet == self._last:
                continue
            if await asyncio.to_thread(self._store.save, fleet):
                self._last = fleet

    def snapshot(self) -> KeptFleet | None:
        """The fleet as it would be kept now; None before the first publication."""
        if self._loop.published is None:
            return None
        fleet = self._loop.fleet
        return KeptFleet(
            region=self._region, cells=tuple(self._cell(cell_id) for cell_id in fleet.cell_ids())
        )

    def _cell(self, cell_id: str) -> KeptCell:
        facts = self._loop.fleet.facts_of(self._loop.fleet.row(cell_id))
        return KeptCell(
            id=cell_id,
            node=facts.node,
            site=facts.site,
            host=facts.host,
            port=facts.port,
            engine_kind=facts.engine_kind,
            models=tuple(
                KeptModel(id=model.id, max_model_len=model.max_model_len, base_model=model.base_model)
                for model in facts.models
            ),
            ready=self._loop.book.life(cell_id).state is CellState.READY,
            weights=self._loop.weights_by_model(cell_id),
        )
