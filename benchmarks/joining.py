"""Ten thousand cells join a whole controller while those that are there send their beats.

1,250 nodes of eight cells say Hello one after the other within 20 s, and beat twice a second from then on,
for ten seconds more. Messages go through the intake into a controller without its ports: control loop,
snapshot, picker's view, page, memory. Every step of the event loop is timed by the processor time that it
takes, so that what else the machine does is not in the figures.

- `step_ms_max`, `step_ms_p999`: the longest step, and the one that a thousandth of all steps are longer than;
- `blocked_share`: the share of time in steps of more than 20 ms;
- `busy_share`: the processor time of all steps over the time that it took.

`longest` in the written result says which steps they were.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from asyncio import events
from typing import Any, Final

import numpy as np

from benchmarks.result import json_path, report
from headrace_controller.control import garbage
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.service import Controller
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config, log
from headrace_shared.clock import SystemClock

SEED: Final = 1
NODES: Final = 1250
CELLS_A_NODE: Final = 8
JOIN_S: Final = 20.0
AFTER_S: Final = 10.0
BEAT_S: Final = 0.5
TURN_S: Final = 0.002
LONG_MS: Final = 20.0
KEPT: Final = 12
# On a busy machine beats come late, and silence is not what is measured here.
SETTINGS: Final = config.parse(
    "gateways: [{id: gw, host: 127.0.0.1}]\nlifecycle: {ttl_s: 60}\n", ControllerSettings
)


class Steps:
    """How long each step of the event loop takes of the processor, ms."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.longest: list[tuple[float, str]] = []
        self._run = events.Handle._run

    def __enter__(self) -> Steps:
        run, note = self._run, self._note

        def timed(handle: events.Handle) -> None:
            begun = time.thread_time()
            run(handle)
            note((time.thread_time() - begun) * 1000, handle)

        events.Handle._run = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        events.Handle._run = self._run  # type: ignore[method-assign]

    def _note(self, took: float, handle: Any) -> None:
        self.took.append(took)
        if took > (self.longest[0][0] if len(self.longest) == KEPT else 0.0):
            add = heapq.heappush if len(self.longest) < KEPT else heapq.heapreplace
            add(self.longest, (took, _name(handle)))


def _name(handle: Any) -> str:
    owner = getattr(handle._callback, "__self__", None)
    return owner.get_name() if isinstance(owner, asyncio.Task) else repr(handle._callback)


class Node:
    """One agent's side of a stream: what it sends is read from its bytes, as from the wire."""

    def __init__(self, number: int, intake: Intake, now: float) -> None:
        self._intake, self._seq = intake, 0
        cells = [f"c{number}-{each}" for each in range(CELLS_A_NODE)]
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host=f"10.{number >> 8}.{number & 255}.1", port=8000 + each),
                models=[pb.ModelFacts(id="m")],
            )
            for each, cell in enumerate(cells)
        ]
        hello = pb.Hello(node=f"n{number}", site="s", incarnation=1, cells=facts)
        session = intake.open(hello, local=True)
        assert isinstance(session, Session)
        self._session = session
        intake.greet(session, hello, now)
        beats = [
            pb.CellBeat(
                cell_id=cell,
                engine_state=pb.ENGINE_STATE_SERVING,
                serving_ms=600_000,
                signals=pb.Signals(queue_depth=number % 7, kv_fill=0.5, ttft_p95_s=0.5, compute_active=0.5),
            )
            for cell in cells
        ]
        self._beat = pb.Telemetry(cells=beats)

    def beat(self, now: float) -> None:
        """Send the figures."""
        self._seq += 1
        self._beat.seq = self._seq
        data = pb.AgentMessage(telemetry=self._beat).SerializeToString()
        self._intake.take(self._session, pb.AgentMessage.FromString(data), now)


async def join(intake: Intake, clock: SystemClock) -> None:
    """All nodes' messages, each at its time."""
    begun, nodes, due = clock.now(), list[Node](), list[tuple[float, int]]()
    while (now := clock.now()) < begun + JOIN_S + AFTER_S:
        wanted = min(NODES, int((now - begun) / JOIN_S * NODES))
        # One node or a few at a time: each message has a step of its own on the wire.
        if len(nodes) < wanted:
            nodes.append(Node(len(nodes), intake, now))
            heapq.heappush(due, (now, len(nodes) - 1))
        elif due and due[0][0] <= now:
            at, number = heapq.heappop(due)
            nodes[number].beat(now)
            heapq.heappush(due, (max(at + BEAT_S, now), number))
        else:
            await asyncio.sleep(TURN_S)
            continue
        await asyncio.sleep(0)


async def run() -> tuple[dict[str, float], list[tuple[float, str]]]:
    """The figures by name, and the longest steps."""
    log.configure("error", "json")
    clock = SystemClock()
    controller = Controller(SETTINGS, clock)
    loop = controller.loop
    intake = Intake(loop, pb.Welcome)
    tasks = [
        asyncio.create_task(loop.run(), name="control loop"),
        asyncio.create_task(garbage.spare(loop.fleet), name="spare the fleet"),
    ]
    garbage.begin()
    with Steps() as steps:
        await asyncio.create_task(join(intake, clock), name="messages")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    ready = sum(life.carries_weight for life in loop.book.lives())
    if ready != NODES * CELLS_A_NODE:
        raise SystemExit(f"{ready} cells are READY at the end, not {NODES * CELLS_A_NODE}")
    took = np.array(steps.took)
    figures = {
        "step_ms_max": float(took.max()),
        "step_ms_p999": float(np.percentile(took, 99.9)),
        "blocked_share": float(took[took > LONG_MS].sum()) / 1000 / (JOIN_S + AFTER_S),
        "busy_share": float(took.sum()) / 1000 / (JOIN_S + AFTER_S),
    }
    return figures, sorted(steps.longest, reverse=True)


def main() -> None:
    """Run it."""
    path = json_path(__doc__ or "")
    figures, longest = asyncio.run(run())
    report("joining", SEED, figures, path, {"longest": longest})


if __name__ == "__main__":
    main()
