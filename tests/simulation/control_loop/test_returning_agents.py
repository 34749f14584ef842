"""Between the Hello of an agent that returns and its first figures nothing is known that moves traffic."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from headrace_controller.control.keeper import Keeper
from headrace_controller.control.kept_fleet import KeptFleetStore
from headrace_controller.lifecycle import Answer
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.simulation.control_loop.test_control_loop import TICK_S, Region

NODES = ("n1", "n2", "n3")
WEIGHTS = {"c1": 100, "c3": 100}


class Figures(Region):
    """Beats in which the engine's figures are older than the GPU's, as they are on a real host: of
    a silent agent's figures, only the GPU's are left for a while."""

    def beat(self, node: str, now: float) -> None:
        engine = pb.SourceBeat(name="engine", status=pb.SOURCE_STATUS_OK, age_ms=900)
        beats = [
            pb.CellBeat(
                cell_id=cell,
                engine_state=state,
                serving_ms=600_000,
                signals=pb.Signals(
                    queue_depth=self.queue.get(cell, 0.0),
                    kv_fill=0.2,
                    compute_active=0.6,
                    gpu_util=1.0,
                    vram_util=0.9,
                    memory_bw_util=0.9,
                ),
                hardware_source=pb.HARDWARE_SOURCE_DCGM,
                sources=[engine],
            )
            for cell, state in self.nodes[node].items()
        ]
        self.loop.telemetry(node, pb.Telemetry(cells=beats), now)
        self.loop.alive(node, now)


@pytest.fixture
def region() -> Region:
    """Three cells, of which c2 has a queue and so a lower weight, steady."""
    region = Figures()
    region.queue["c2"] = 16.0
    for number in (1, 2, 3):
        region.connect(f"n{number}", f"c{number}")
    region.run(14)
    assert WEIGHTS.items() <= region.weights.items()
    assert region.weights["c2"] < 80
    return region


def tick(region: Region, speaking: Iterable[str] = ()) -> None:
    """One tick, of which the agents that speak only say that they live."""
    now = region.clock.advance(TICK_S)
    for node in speaking:
        region.loop.alive(node, now)
    region.loop.tick(now)


@pytest.mark.parametrize("silent_s", [2.0, 8.0, 40.0])
def test_an_agent_that_was_silent_finds_its_cells_weights_as_they_were(
    region: Region, silent_s: float
) -> None:
    before, pushes = region.weights, len(region.outside.plans)
    region.run(0.6, silent=["n2"])
    region.loop.answered("c2", Answer.ALIVE, "")
    region.run(silent_s, silent=["n2"])
    region.connect("n2", "c2")
    for _ in range(5):
        tick(region, NODES)
        assert region.weights == before
    region.run(5)
    assert region.weights == before
    assert len(region.outside.plans) == pushes


def test_a_restarted_controller_publishes_nothing_on_mere_names(region: Region) -> None:
    """Envoys keep what they hold until there are figures; then they are told what was kept."""
    before = region.weights
    kept = Keeper(KeptFleetStore(Path("unused"), "default"), region.loop, "default").snapshot()
    again = Figures(kept=kept, clock=region.clock)
    again.queue = region.queue
    for number in (1, 2, 3):
        again.connect(f"n{number}", f"c{number}")
    for _ in range(5):
        tick(again, NODES)
        assert again.outside.plans == []
    again.run(0.2)
    assert again.weights == before
    again.run(10)
    assert again.weights == before
