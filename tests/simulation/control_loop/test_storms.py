"""Very many things at once: what must not move stays, and the loop leaves time to the messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.settings import ControllerSettings
from headrace_shared import config
from headrace_shared.clock import SystemClock
from tests.simulation.control_loop.test_control_loop import SETTINGS, Outside, Region

NODES = 150
BUSY_S = 0.02
TICKS = 10


def test_a_fleet_whose_agents_all_reconnect_at_once_moves_no_weight() -> None:
    region = Region()
    cells = {f"n{number}": (f"c{2 * number}", f"c{2 * number + 1}") for number in range(NODES)}
    for node, named in cells.items():
        region.connect(node, *named)
        region.queue[named[0]] = 4.0
    region.run(6.0)
    weights, plans = region.weights, len(region.outside.plans)
    assert len(weights) == 2 * NODES
    assert len(set(weights.values())) > 1
    transitions = len(region.loop.book.transitions)
    for node, named in cells.items():
        region.loop.stream_lost(node, region.clock.now())
        region.connect(node, *named)  # restarted: its incarnation is a new one
    region.loop.tick(region.clock.now())
    region.run(2.0)
    assert len(region.loop.book.transitions) == transitions, "they were READY and are"
    assert region.outside.asked == []
    assert all(plan.pools["m"]["gw"] == region.outside.plans[plans - 1].pools["m"]["gw"]
               for plan in region.outside.plans[plans:])  # fmt: skip


class Storm(ControlLoop):
    """Changes of membership without end, and ticks that are slow."""

    def __init__(self, clock: SystemClock) -> None:
        settings = config.parse(SETTINGS, ControllerSettings)
        super().__init__(settings, clock, Metrics(), Outside(), None)
        self.ticks: list[tuple[float, float]] = []
        self.enough = asyncio.Event()

    def tick(self, now: float, lateness: float = 0.0) -> None:
        while self._clock.now() < now + BUSY_S:
            pass
        self._wake.set()
        self.ticks.append((now, self._clock.now()))
        if len(self.ticks) == TICKS:
            self.enough.set()


async def test_ticks_of_a_storm_leave_as_much_time_as_they_take() -> None:
    loop = Storm(SystemClock())
    running = asyncio.create_task(loop.run(), name="control loop")
    async with asyncio.timeout(30):
        await loop.enough.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    pauses = [begun - ended for (_, ended), (begun, _) in zip(loop.ticks, loop.ticks[1:], strict=False)]
    assert min(pauses) >= 0.9 * BUSY_S
