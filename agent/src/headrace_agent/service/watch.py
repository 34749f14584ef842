"""What the agent itself notices over time: GPUs that vanish and drains that are over."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from headrace_agent.collectors import moments
from headrace_agent.collectors.grid import AWAKE_S, next_due
from headrace_agent.collectors.readings import CellEvent, EventKind
from headrace_agent.heartbeat.drain import Drains
from headrace_agent.service.node import Node
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import Clock

INTERVAL_S: Final = 0.2
# The beats that went out just before have put the same figures together.
GPUS_INTERVAL_S: Final = 0.5


class Watch:
    """Turns conditions into events. `tell_all` reaches every controller, `tell_one` the one named."""

    def __init__(
        self,
        node: Node,
        clock: Clock,
        tell_all: Callable[[CellEvent], None],
        tell_one: Callable[[str, CellEvent], None],
    ) -> None:
        self._node = node
        self._clock = clock
        self._tell_all = tell_all
        self._tell_one = tell_one
        self._drains = Drains()
        self._lost: set[str] = set()
        self._log = log.get("watch")

    async def run(self) -> None:
        """Check until cancelled."""
        gpus_due = 0.0
        while True:
            now = self._clock.now()
            if now >= gpus_due:
                self.check_gpus(now)
                gpus_due = next_due(now, GPUS_INTERVAL_S, AWAKE_S)
            self.check_drains(now)
            await moments.sleep(next_due(now, INTERVAL_S, AWAKE_S) - now)

    def check_gpus(self, now: float) -> None:
        """One look at the GPUs under all cells."""
        for cell_id in self._node.cells_with_gpus:
            self._check_gpus(cell_id, now)

    def check_drains(self, now: float) -> None:
        """One look at all cells that are drained."""
        for done in self._drains.check(self._node.engine, now):
            self._log.info("drain finished", cell=done.cell_id, controller=done.controller, cause=done.cause)
            self._tell_one(done.controller, CellEvent(done.cell_id, EventKind.DRAIN_FINISHED, done.cause))

    def drain(self, controller: str, drain: pb.Drain) -> None:
        """A controller drains a cell: it is told when the cell is empty or the deadline passes."""
        if drain.cell_id not in self._node:
            self._log.warning(
                "asked to drain an unknown cell", cell=drain.cell_id[:128], controller=controller
            )
            return
        deadline_s = drain.deadline_ms / 1000
        self._drains.start(controller, drain.cell_id, drain.cause[:256], deadline_s, self._clock.now())
        self._log.info(
            "drain began",
            cell=drain.cell_id,
            controller=controller,
            cause=drain.cause[:256],
            deadline_s=deadline_s,
        )

    def undrain(self, controller: str, undrain: pb.Undrain) -> None:
        """A controller takes a drain back."""
        if self._drains.cancel(controller, undrain.cell_id):
            self._log.info("drain cancelled", cell=undrain.cell_id, controller=controller)

    def forget(self, *, cells: Collection[str] = (), controller: str = "") -> None:
        """Drop what belongs to cells, or to a controller, that this agent has no more."""
        self._drains.forget(cells=cells, controller=controller)
        self._lost.difference_update(cells)

    def xid(self, uuid: str, xid: int) -> None:
        """A GPU reported an XID: every cell on it is told of."""
        for cell_id in self._node.cells_on(uuid):
            self._tell_all(CellEvent(cell_id, EventKind.XID, f"XID {xid} on GPU {uuid}", xid=xid))

    def _check_gpus(self, cell_id: str, now: float) -> None:
        health = self._node.hardware(cell_id, now).health
        if health is None or not health.gpu_lost:
            self._lost.discard(cell_id)
        elif cell_id not in self._lost:
            self._lost.add(cell_id)
            self._tell_all(CellEvent(cell_id, EventKind.GPU_LOST, "a GPU under this cell is gone"))
