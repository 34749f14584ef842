"""Ingest at full size: 10,000 cells on 1,250 streams, the whole controller on one core.

A process of its own on another core plays the agents: each of its streams sends two telemetry beats of
eight cells and ten liveness beats a second, each at its own moment. How late a beat is taken in is
measured from the moment it was due, so that the generator's own lateness counts, too. It is shown beside,
and where it is what is measured, there is no result.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import time
from array import array
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np

from benchmarks.ingest_agents import MEASURED_S, SEED, WARM_UP_S, Played, due, play
from benchmarks.ingest_tick import tick_ms
from benchmarks.result import json_path, report
from headrace_controller import service
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.settings import ControllerSettings
from headrace_lab.stack.ports import free_ports
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config, log
from headrace_shared.tasks import run_program

# Beyond this the generator itself is what is measured.
GENERATOR_LATE_MS: Final = 25.0


# The controller, in its own process.


@dataclass(slots=True)
class Ledger:
    """How late each beat was taken in, s; `start` is the agents' start on the monotonic clock."""

    start: float
    measured_from: float
    # Arrays, which the garbage collector does not look through.
    _seqs: array[int] = field(default_factory=lambda: array("q"))
    _times: array[float] = field(default_factory=lambda: array("d"))

    def note(self, seq: int, now: float) -> None:
        """The beat with this sequence number was taken in. What this costs counts as the controller's."""
        self._seqs.append(seq)
        self._times.append(now)

    @property
    def late(self) -> list[float]:
        """How late the beats that were due in the measured time were taken in, s."""
        seen = zip(self._seqs, self._times, strict=True)
        return [now - (self.start + due(seq)) for seq, now in seen if now >= self.measured_from]


def serve(ports: tuple[int, int, int], pipe: Connection) -> None:
    """Run the real controller; when told the start, measure until told to end."""
    os.sched_setaffinity(0, {0})
    telemetry, xds, admin = ports
    settings = config.parse(
        f"gateways: [{{id: gw, host: 127.0.0.1}}]\n"
        f"listen: {{telemetry: 127.0.0.1:{telemetry}, xds: 127.0.0.1:{xds}, admin: 127.0.0.1:{admin}}}\n",
        ControllerSettings,
    )
    log.configure("error", "json")
    ledger: Ledger | None = None
    take = Intake.take

    def noting(
        self: Intake, session: Session, message: pb.AgentMessage, now: float
    ) -> pb.ControllerMessage | None:
        answer = take(self, session, message, now)
        if ledger is not None:
            ledger.note(session.seq, time.monotonic())
        return answer

    Intake.take = noting  # type: ignore[method-assign]

    async def main(stop: asyncio.Event) -> None:
        nonlocal ledger
        running = asyncio.create_task(service.run(settings, stop), name="controller")
        loop = asyncio.get_running_loop()
        ledger = measured = Ledger(*await loop.run_in_executor(None, pipe.recv))
        await asyncio.sleep(max(0.0, measured.measured_from - time.monotonic()))
        begun, before = time.monotonic(), os.times()
        await asyncio.sleep(MEASURED_S)
        after, wall = os.times(), time.monotonic() - begun
        ledger = None
        used = after.user + after.system - before.user - before.system
        pipe.send((measured.late, used / wall))
        await loop.run_in_executor(None, pipe.recv)
        stop.set()
        await running

    run_program(main)


def run() -> dict[str, float]:
    """One whole run; the figures by name."""
    context = multiprocessing.get_context("spawn")
    telemetry, xds, admin = free_ports(3)
    ports = (telemetry, xds, admin)
    controller, controller_end = context.Pipe()
    agents, agents_end = context.Pipe()
    programs: list[Any] = [
        context.Process(target=serve, args=(ports, controller_end), name="controller"),
        context.Process(target=play, args=(ports[0], agents_end), name="agents"),
    ]
    try:
        for program in programs:
            program.start()
        controller_end.close()
        agents_end.close()
        start = _expect(agents, 120.0)
        measured_from = time.monotonic() + WARM_UP_S
        controller.send((start, measured_from))
        agents.send(measured_from)
        late, cpu_share = _expect(controller, WARM_UP_S + MEASURED_S + 60.0)
        played: Played = _expect(agents, 60.0)
        controller.send("end")
        for program in programs:
            program.join(10.0)
    finally:
        for program in programs:
            program.kill()
    own_late_ms = float(np.percentile(played.late, 99)) * 1000 if played.late else math.inf
    if own_late_ms > GENERATOR_LATE_MS:
        raise SystemExit(
            f"the generator itself was {own_late_ms:.0f} ms late at P99, more than {GENERATOR_LATE_MS:g}: "
            "nothing is known of the controller; run it on two quiet cores"
        )
    if not late:
        raise SystemExit("the controller took no beat in while it was measured")
    return {
        "beats_per_s": len(late) / MEASURED_S,
        "late_ms_p50": float(np.percentile(late, 50)) * 1000,
        "late_ms_p99": float(np.percentile(late, 99)) * 1000,
        "late_ms_max": max(late) * 1000,
        "generator_late_ms_p99": own_late_ms,
        "generator_cpu_share": played.cpu_share,
        "cpu_share": cpu_share,
    }


def _expect(pipe: Connection, seconds: float) -> Any:
    if not pipe.poll(seconds):
        raise SystemExit(f"a part of the benchmark said nothing for {seconds:g} s")
    try:
        return pipe.recv()
    except EOFError:
        raise SystemExit("a part of the benchmark ended early; it says why above") from None


def main() -> None:
    """Run the streams, then the tick alone."""
    path = json_path(__doc__ or "")
    report("ingest", SEED, run() | {"tick_ms.10000": tick_ms()}, path)


if __name__ == "__main__":
    main()
