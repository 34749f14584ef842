"""How soon a controller hears that an engine died: SIGKILL of its server, and of its core process.

The agent runs as a process of its own, with its default settings. Each engine is two processes, as
vLLM is built: a server, which answers 503 once its core has ended, and a core, which goes on when
its server has. The time goes from just before the kill to the event in the controller's hands; the
controller is this process, and the clock is the machine's. Kills come at random moments.

- `server_kill_ms_max`, `core_kill_ms_max`: the most of `n` kills; `…_median`: their median;
- `server_kill_named`, `core_kill_named`: in how many of them the event's cause names the process.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import yaml
from tests.support.mortal_engine import Engines, mortal_engines

from benchmarks.result import json_path, report
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryServicer, add_CellTelemetryServicer_to_server

SEED: Final = 1
KILLS: Final = 20
PATIENCE_S: Final = 30.0
# An engine's processes are looked at when it begins to serve, at most half a second later.
SETTLE_S: Final = (1.2, 1.7)
PROGRAM: Final = "from headrace_agent.cli import main; main()"


class Controller(CellTelemetryServicer):
    """Acknowledges events, and notes when each came."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[tuple[float, pb.CellEvent]] = asyncio.Queue(maxsize=1000)

    async def Stream(  # noqa: N802 - the service's name for it
        self, request_iterator: AsyncIterator[pb.AgentMessage], context: Any
    ) -> AsyncIterator[pb.ControllerMessage]:
        async for message in request_iterator:
            body = message.WhichOneof("body")
            if body == "hello":
                yield pb.ControllerMessage(welcome=pb.Welcome(session="bench"))
            elif body == "event":
                self.events.put_nowait((time.monotonic(), message.event))
                yield pb.ControllerMessage(ack=pb.Ack(event_id=message.event.event_id))

    async def hear(self, kind: pb.CellEventKind) -> tuple[float, pb.CellEvent]:
        """The next event of a kind; those before it are left."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                at, event = await self.events.get()
                if event.kind == kind:
                    return at, event


async def measure(path: Path | None) -> None:
    """Kill and report."""
    figures: dict[str, float] = {}
    async with mortal_engines() as engines, listening() as (controller, port), agent(engines.url, port):
        for victim in ("server", "core"):
            kills = [await kill(engines, controller, victim) for _ in range(KILLS)]
            times = [1000 * seconds for seconds, _ in kills]
            figures[f"{victim}_kill_ms_max"] = max(times)
            figures[f"{victim}_kill_ms_median"] = statistics.median(times)
            figures[f"{victim}_kill_named"] = sum(named for _, named in kills)
    report("engine_death", SEED, figures | {"n": KILLS}, path)


async def kill(engines: Engines, controller: Controller, victim: str) -> tuple[float, bool]:
    """One engine's life: the seconds from its kill to the event, and whether that names who ended."""
    pids = await engines.start()
    await controller.hear(pb.CELL_EVENT_KIND_ENGINE_SERVING)
    await asyncio.sleep(_random.uniform(*SETTLE_S))
    assert controller.events.empty(), "nothing has happened to it yet"
    pid = pids.server if victim == "server" else pids.core
    killed_at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    at, event = await controller.hear(pb.CELL_EVENT_KIND_ENGINE_DOWN)
    engines.bury(pids)
    return at - killed_at, f"process {pid} " in event.cause


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Controller, int]]:
    """A controller and its port."""
    controller, server = Controller(), grpc.aio.server()
    add_CellTelemetryServicer_to_server(controller, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield controller, port
    finally:
        await server.stop(None)


@asynccontextmanager
async def agent(engine_url: str, controller_port: int) -> AsyncIterator[None]:
    """An agent of one cell, as a process."""
    config = {
        "node": "host-1",
        "site": "site-1",
        "controllers": [{"address": f"127.0.0.1:{controller_port}"}],
        "cells": [{"id": "cell-1", "url": engine_url}],
        "network": {"method": "off"},
        "log": {"level": "error"},
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(yaml.safe_dump(config))
        file.flush()
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, "run", "-c", file.name)
        try:
            yield
        finally:
            process.terminate()
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()


_random = random.Random(SEED)


def main() -> None:
    """Run it."""
    asyncio.run(measure(json_path(__doc__ or "")))


if __name__ == "__main__":
    main()
