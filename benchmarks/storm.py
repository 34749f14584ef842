"""A storm: 300 changes of state a second for three minutes, through the whole controller but its sockets.

1,200 engines on 150 nodes die by an immediate event and come back by a beat, in turn, 150 of each a
second, while all nodes send their ordinary beats. Messages go through the intake into the running
control loop, whose plans are built into the snapshot of a gateway; every change is counted by the
metrics and logged to a file. Afterwards everything must have been counted and logged.

- `transitions`, `transitions_per_s`: changes that were caused, and how many a second once the first
  dead come back;
- `lost`: how many of them the metric, the log or the cells' own histories do not have;
- `rss_fill_mib`: resident memory after 80 seconds over that after the first ten (medians of ten
  seconds), while each cell's own bounded history fills;
- `rss_growth_mib`: that in the last ten seconds over that after 80, when all histories are full;
- `tick_late_ms_max`: the longest that the loop kept a timer waiting meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.result import json_path, report
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.lifecycle import CellState
from headrace_controller.projection import Plan
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config, log
from headrace_shared.clock import SystemClock

SEED: Final = 1
NODES: Final = 150
CELLS_A_NODE: Final = 8
RATE: Final = 300
SECONDS: Final = 180
# By then each cell has had more changes than its history keeps.
FULL_S: Final = 80
STEP_S: Final = 0.02
BEAT_S: Final = 0.5
DOWN_S: Final = 4.0
PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") / 1024
SETTINGS: Final = config.parse(
    "gateways: [{id: gw, host: 127.0.0.1}]\n"
    "lifecycle: {ramp_s: 0, hold_down_s: 0, barrier_s: 0, history: 16}\n",
    ControllerSettings,
)


class Outside:
    """One gateway that nobody is connected to."""

    def __init__(self) -> None:
        self._builder = SnapshotBuilder(SETTINGS.gateways[0], SETTINGS.envoy, epoch_ns=1)
        self.asked = 0

    def publish(self, plan: Plan) -> None:
        self._builder.build(plan)

    def ask_engine(self, *_: Any) -> None:
        self.asked += 1

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        return True


class Node:
    """One agent's side of a stream."""

    def __init__(self, number: int, intake: Intake, clock: SystemClock) -> None:
        self.name = f"n{number}"
        self.down: dict[str, bool] = {f"c{number}-{each}": False for each in range(CELLS_A_NODE)}
        self._intake, self._clock = intake, clock
        self._seq = self._event = 0
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host=f"10.0.{number}.1", port=8000 + each),
                models=[pb.ModelFacts(id="m")],
            )
            for each, cell in enumerate(self.down)
        ]
        hello = pb.Hello(node=self.name, site="s", incarnation=1, cells=facts)
        session = intake.open(hello, local=True)
        assert isinstance(session, Session)
        self._session = session
        intake.greet(session, hello, clock.now())

    def beat(self) -> None:
        """A telemetry beat: who is down says so."""
        beats = [
            pb.CellBeat(
                cell_id=cell,
                engine_state=pb.ENGINE_STATE_DOWN if down else pb.ENGINE_STATE_SERVING,
                serving_ms=0 if down else 1000,
                signals=pb.Signals(queue_depth=1, kv_fill=0.5, compute_active=0.5),
            )
            for cell, down in self.down.items()
        ]
        self._seq += 1
        self._take(pb.AgentMessage(telemetry=pb.Telemetry(seq=self._seq, cells=beats)))

    def kill(self, cell: str) -> None:
        """The engine dies, which the agent tells at once."""
        self.down[cell] = True
        self._seq, self._event = self._seq + 1, self._event + 1
        event = pb.CellEvent(
            seq=self._seq, event_id=self._event, cell_id=cell, kind=pb.CELL_EVENT_KIND_ENGINE_DOWN
        )
        event.cause = f"death {self._event}"
        self._take(pb.AgentMessage(event=event))

    def _take(self, message: pb.AgentMessage) -> None:
        # As it comes from the wire.
        data = message.SerializeToString()
        self._intake.take(self._session, pb.AgentMessage.FromString(data), self._clock.now())


async def storm(loop: ControlLoop, nodes: list[Node]) -> tuple[int, float, list[float]]:
    """Let it blow; changes caused, the latest timer in ms, and the resident MiB of each second."""
    clock = SystemClock()
    victims = _in_turn(nodes)
    begun = clock.now()
    dead: list[tuple[float, Node, str]] = []
    caused, late, rss = 0, 0.0, [rss_mib()]
    for step in range(round((SECONDS + DOWN_S) / STEP_S)):
        due = begun + step * STEP_S
        await asyncio.sleep(max(0.0, due - clock.now()))
        late = max(late, clock.now() - due)
        for _ in range(round(RATE / 2 * STEP_S)):
            node, cell = next(victims)
            node.kill(cell)
            dead.append((due + DOWN_S, node, cell))
            caused += 1
        while dead and dead[0][0] <= due:
            _, node, cell = dead.pop(0)
            node.down[cell] = False
            caused += 1
        for node in nodes[step % round(BEAT_S / STEP_S) :: round(BEAT_S / STEP_S)]:
            node.beat()
        if clock.now() - begun >= len(rss):
            rss.append(rss_mib())
    for _ in range(2):  # who came back last has yet to say so
        await asyncio.sleep(BEAT_S)
        for node in nodes:
            node.beat()
    await asyncio.sleep(BEAT_S)
    return caused, late * 1000, rss


def _in_turn(nodes: list[Node]) -> Iterator[tuple[Node, str]]:
    """Every cell, one of each node before the next of any, without end."""
    while True:
        for each in range(CELLS_A_NODE):
            for node in nodes:
                yield node, list(node.down)[each]


def rss_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * PAGE_KIB / 1024


def counted(metrics: Metrics) -> int:
    """Changes between two states, as the metric has them."""
    samples = [each for family in metrics.transitions.collect() for each in family.samples]
    return round(sum(each.value for each in samples if each.name.endswith("_total") and each.labels["from"]))


def logged(path: Path) -> int:
    """Changes between two states, as the log has them."""
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return sum(1 for line in lines if line["event"] == "state" and line["before"])


def misremembered(loop: ControlLoop, nodes: list[Node]) -> int:
    """Cells whose present state, or the chain of whose newest changes, is not what was done to them."""
    chains = Counter(
        life.cell_id
        for life in loop.book.lives()
        for before, after in zip(life.history, life.history[1:], strict=False)
        if after.before is not before.to
    )
    wrong = [
        cell
        for node in nodes
        for cell, down in node.down.items()
        if loop.book.life(cell).state is not (CellState.FAILED if down else CellState.READY)
    ]
    return len(chains) + len(wrong)


def _level(rss: list[float], second: int) -> float:
    """The median of ten seconds, MiB."""
    return statistics.median(rss[second : second + 10])


async def run() -> tuple[dict[str, float], list[float]]:
    """The figures by name, and the resident MiB of each second."""
    with tempfile.NamedTemporaryFile("w", suffix=".log", encoding="utf-8") as file:
        log.configure("info", "json", file)  # type: ignore[arg-type]
        clock, metrics = SystemClock(), Metrics()
        loop = ControlLoop(SETTINGS, clock, metrics, Outside(), None)
        intake = Intake(loop, pb.Welcome)
        running = asyncio.create_task(loop.run(), name="control loop")
        nodes = [Node(number, intake, clock) for number in range(NODES)]
        for _ in range(4):
            for node in nodes:
                node.beat()
            await asyncio.sleep(BEAT_S)
        before = counted(metrics)
        if before != NODES * CELLS_A_NODE:
            raise SystemExit(f"{before} cells are READY before the storm, not {NODES * CELLS_A_NODE}")
        caused, late_ms, rss = await storm(loop, nodes)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        file.flush()
        seen = min(counted(metrics), logged(Path(file.name))) - before
        figures = {
            "transitions": caused,
            "transitions_per_s": (caused - RATE / 2 * DOWN_S) / SECONDS,
            "lost": abs(caused - seen) + misremembered(loop, nodes),
            "rss_fill_mib": _level(rss, FULL_S) - _level(rss, 10),
            "rss_growth_mib": _level(rss, len(rss) - 10) - _level(rss, FULL_S),
            "tick_late_ms_max": late_ms,
        }
    return figures, rss


def main() -> None:
    """Run it."""
    path = json_path(__doc__ or "")
    figures, rss = asyncio.run(run())
    report("storm", SEED, figures, path, {"rss_mib": rss})


if __name__ == "__main__":
    main()
