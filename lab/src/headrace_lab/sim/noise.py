"""What healthy GPUs show: cooling that wanders, and now and then a replay or a corrected error."""

from __future__ import annotations

import random

from headrace_lab.gpu.model import GpuStress
from headrace_lab.scenarios.settings import HealthNoise
from headrace_lab.sim.world import World

LEAST_COOLING = 0.5


class Noise:
    """Plays a noise on all cells of a world, for as long as it runs.

    Counters get whole counts: within an interval either one event or none is spread over it.
    """

    def __init__(self, world: World, plan: HealthNoise, seed: int) -> None:
        self._world = world
        self._plan = plan
        self._random = random.Random(f"{seed}/noise")
        world.calendar.enter(world.clock.now(), self._draw)

    def _draw(self, now: float, _: object) -> None:
        every_s = self._plan.every_s
        for cell in self._world.cells.values():
            cooling = max(LEAST_COOLING, self._random.gauss(1.0, self._plan.cooling))
            replays = self._counts(self._plan.replays_per_min)
            errors = self._counts(self._plan.ecc_per_min)
            cell.suffer(now, GpuStress(cooling=cooling, replays_per_min=replays, ecc_per_min=errors))
        self._world.calendar.enter(now + every_s, self._draw)

    def _counts(self, per_min: float) -> float:
        """A rate for one interval that makes one count in it, or none."""
        chance = per_min * self._plan.every_s / 60
        return 60 / self._plan.every_s if self._random.random() < chance else 0.0
