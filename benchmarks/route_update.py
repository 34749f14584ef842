"""One route update: projection plus EDS build, against the bare serialisation of the same message.

Every timed update moves the weight of every cell, which is the most that a tick can ask for.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from envoy.config.endpoint.v3 import endpoint_pb2

from benchmarks.result import json_path, median_us, report
from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import Book
from headrace_controller.pressure import PressureModel, Pressures
from headrace_controller.projection import Plan, Projector
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.names import EDS
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config

SEED = 1
SIZES = {9: 2000, 100: 1000, 1000: 200, 10000: 40}
SETTINGS = """
gateways: [{id: gw, host: 127.0.0.1}]
projection: {deadband: 0, push_interval_s: 0.05}
pressure: {smoothing_s: 0}
lifecycle: {ramp_s: 0}
"""
CELLS_A_NODE = 8


class Bench:
    """A fleet of `size` READY cells whose pressures swing between two tables."""

    def __init__(self, size: int) -> None:
        self.settings = config.parse(SETTINGS, ControllerSettings)
        self.random = random.Random(SEED)
        self.now = 1000.0
        self.fleet = Fleet(["gw"])
        self.book = Book(self.fleet, self.settings.lifecycle)
        self.model = PressureModel(self.settings.pressure, 1, jump=self.settings.projection.emergency)
        self.projector = Projector(self.settings.projection, ["gw"], self.settings.lifecycle.ramp_s)
        self.builder = SnapshotBuilder(self.settings.gateways[0], self.settings.envoy)
        for first in range(0, size, CELLS_A_NODE):
            self._register(
                f"n{first}", [f"c{number}" for number in range(first, min(size, first + CELLS_A_NODE))]
            )
        self.book.tick(self.now)
        self.tables = [self._beat(), self._beat()]
        self.turn = 0

    def update(self) -> Plan:
        """Projection and EDS build: what one route update is."""
        self.turn ^= 1
        self.now += 1.0
        plan = self.projector.tick(self.fleet, self.tables[self.turn], self.now, force=True).plan
        assert plan is not None
        self.snapshot = self.builder.build(plan)
        return plan

    def serialise(self) -> Callable[[], bytes]:
        """The bare serialisation of the message that the last update published."""
        (resource,) = self.snapshot.types[EDS].resources.values()
        message = endpoint_pb2.ClusterLoadAssignment.FromString(resource.box.value)
        return message.SerializeToString

    def _register(self, node: str, cells: list[str]) -> None:
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host=f"10.{int(cell[1:]) >> 8}.{int(cell[1:]) & 255}.1", port=8000),
                models=[pb.ModelFacts(id="m")],
            )
            for cell in cells
        ]
        hello = pb.Hello(node=node, site="s", incarnation=1, cells=facts)
        self.book.registered(self.fleet.register(node, "s", hello, self.now), self.now)
        self._tell(node, cells)

    def _tell(self, node: str, cells: list[str]) -> None:
        beats = [
            pb.CellBeat(
                cell_id=cell,
                engine_state=pb.ENGINE_STATE_SERVING,
                serving_ms=600_000,
                signals=pb.Signals(
                    queue_depth=self.random.uniform(0, 32), kv_fill=self.random.random(), ttft_p95_s=1.0
                ),
            )
            for cell in cells
        ]
        self.fleet.apply(node, pb.Telemetry(cells=beats), self.now)
        self.fleet.touch(node, self.now)

    def _beat(self) -> Pressures:
        self.now += 1.0
        for node in list(self.fleet.nodes):
            self._tell(node, list(self.fleet.node_cells(node)))
        return self.model.tick(self.fleet, self.now)


def main() -> None:
    """Run all sizes."""
    path = json_path(__doc__ or "")
    figures: dict[str, float] = {}
    for size, repeats in SIZES.items():
        bench = Bench(size)
        figures[f"median_us.{size}"] = median_us(bench.update, repeats)
        bare = median_us(bench.serialise(), repeats)
        figures[f"serialise_us.{size}"] = bare
        figures[f"ratio_to_serialise.{size}"] = figures[f"median_us.{size}"] / bare
    report("route_update", SEED, figures, path)


if __name__ == "__main__":
    main()
