"""One cell over several nodes, as its nodes speak."""

from __future__ import annotations

import math
from typing import Any

from headrace_controller.inventory import Fleet, MemberChange
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS, GPU_SIGNALS
from tests.unit.controller.inventory.builders import beat, facts, hello, telemetry

TTL_S = 0.5
DCGM, NVML, NONE = pb.HARDWARE_SOURCE_DCGM, pb.HARDWARE_SOURCE_NVML, pb.HARDWARE_SOURCE_NONE


class Engine:
    """One cell over the nodes head, w1 and w2, and time."""

    def __init__(self, *nodes: str, gpus: int = 1) -> None:
        self.fleet = Fleet(["g"])
        self.now = 100.0
        self.gpus = gpus
        self.head(*(nodes or ("w1", "w2")))

    def head(self, *nodes: str) -> None:
        named = facts("c1")
        named.member_nodes.extend(nodes)
        named.gpus.extend(pb.GpuFacts(uuid=f"GPU-head-{n}") for n in range(self.gpus))
        self.fleet.register("head", "s", hello(named), self.now)
        self.row = self.fleet.row("c1")

    def join(self, node: str, *cells: str) -> None:
        members = [
            pb.MemberFacts(cell_id=each, gpus=[pb.GpuFacts(uuid=f"GPU-{node}")]) for each in cells or ("c1",)
        ]
        self.fleet.register(node, "s", pb.Hello(incarnation=1, members=members), self.now)

    def head_beat(
        self, source: int = DCGM, health: pb.HardwareHealth | None = None, **signals: float
    ) -> None:
        said = beat("c1", signals={"queue_depth": 4.0} | signals)
        said.hardware_source = source  # type: ignore[assignment]
        if health is not None:
            said.hardware.CopyFrom(health)
        self.fleet.apply("head", telemetry(said), self.now)

    def member_beat(self, node: str, source: int = DCGM, **fields: Any) -> list[str]:
        """What it tells; returns the strangers."""
        names = {name: fields.pop(name) for name in GPU_SIGNALS if name in fields}
        said = pb.MemberBeat(cell_id="c1", signals=pb.Signals(**names), hardware_source=source, **fields)  # type: ignore[arg-type]
        return self.fleet.apply(node, pb.Telemetry(members=[said]), self.now)

    def event(self, node: str, kind: Any, **fields: Any) -> bool:
        return self.fleet.note_event(node, pb.CellEvent(cell_id="c1", kind=kind, **fields), self.now)

    def judge(self, seconds: float = 0.0, lateness: float = 0.0) -> tuple[MemberChange, ...]:
        self.now += seconds
        return self.fleet.crews.judge(self.now, TTL_S, lateness)

    @property
    def signals(self) -> dict[str, float]:
        values = dict(zip(CELL_SIGNALS, self.fleet.signals[self.row].tolist(), strict=True))
        return {name: value for name, value in values.items() if not math.isnan(value)}

    def flag(self, name: str) -> Any:
        return getattr(self.fleet, name)[self.row].item()


def reporting() -> Engine:
    """Head and both members report; w1 is the busiest, w2 the fullest."""
    made = Engine()
    for node in ("w1", "w2"):
        made.join(node)
    made.head_beat(compute_active=0.5, vram_util=0.5)
    made.member_beat("w1", compute_active=0.9, vram_util=0.1)
    made.member_beat("w2", compute_active=0.1, vram_util=0.8, memory_bw_util=0.3)
    return made
