"""A day of the agent in minutes: 200,000 telemetry beats under constant change, and what it holds.

The agent runs as a process of its own with its cadences compressed. Engines die and restart, their
series come and go, pages are bad now and then; controllers restart, withhold their acknowledgements,
drain, and change the gateways; the settings file is reloaded. Its memory, descriptors, threads and
tasks are sampled all along.

- `rss_slope_mib_per_100k_beats`: least squares over the samples after the warm-up;
- `rss_mib_after_warmup`, `rss_mib_end`, and the same of `fds`, `threads` and `tasks`: the median of
  the first and of the last fifth after the warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from benchmarks.moody_controllers import Controllers
from benchmarks.result import report
from headrace_lab.plots.curves import Curve, draw
from headrace_lab.stack.ports import free_ports
from headrace_pb.v1 import telemetry_pb2 as pb

SEED: Final = 1
BEATS: Final = 200_000
CELLS: Final = 4
CONTROLLERS: Final = 3
SAMPLES: Final = 100
WARM_SHARE: Final = 0.1
READY_S: Final = 30.0
# Without progress for so long, something hangs: that is a result too, and none to wait for.
STUCK_S: Final = 60.0
RELOAD_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the agent holds after `beats` telemetry beats."""

    beats: int
    seconds: float
    rss_mib: float
    fds: int
    threads: int
    tasks: int


class Agent:
    """The agent's process and its settings file."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path, settings: dict[str, Any]) -> None:
        self.process = process
        self._watched = psutil.Process(process.pid)
        self._file = file
        self._settings = settings
        self._reloads = 0

    def reload(self) -> None:
        """Change a label, and take the last cell out or put it back."""
        self._reloads += 1
        cells = self._settings["cells"]
        cells[0]["labels"] = {"turn": str(self._reloads)}
        kept = cells[:-1] if self._reloads % 2 else cells
        self._file.write_text(yaml.safe_dump(self._settings | {"cells": kept}))
        self.process.send_signal(signal.SIGHUP)

    async def sample(self, beats: int, seconds: float) -> Sample:
        """Look at it now."""
        own = await asyncio.to_thread(self._own_metrics)
        with self._watched.oneshot():
            return Sample(
                beats,
                round(seconds, 2),
                round(self._watched.memory_info().rss / 2**20, 3),
                self._watched.num_fds(),
                self._watched.num_threads(),
                int(own["headrace_agent_tasks"]),
            )

    def _own_metrics(self) -> dict[str, float]:
        address = self._settings["metrics_listen"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
        }


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of the context, ended in order where it lets itself be."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def sources() -> Iterator[dict[str, Any]]:
    """The ports of everything the agent reads."""
    command = [sys.executable, "-m", "benchmarks.changing_sources", str(CELLS), str(SEED)]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())


@contextmanager
def agent(ports: dict[str, Any], controllers: Sequence[int]) -> Iterator[Agent]:
    """The agent on these sources and controllers; it must end in order."""
    (own,) = free_ports(1)
    settings = {
        "node": "bench",
        "site": "bench",
        "controllers": [{"address": f"127.0.0.1:{port}"} for port in controllers],
        "cells": [
            {"id": f"cell-{number}", "url": f"http://127.0.0.1:{port}", "gpus": [number]}
            for number, port in enumerate(ports["engines"])
        ],
        "hardware": {"dcgm_url": f"http://127.0.0.1:{ports['gpus']}/metrics"},
        "metrics_listen": f"127.0.0.1:{own}",
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "agent.yaml"
        file.write_text(yaml.safe_dump(settings))
        with running([sys.executable, "-m", "benchmarks.long_run_agent", str(file)]) as process:
            yield Agent(process, file, settings)
            process.terminate()
            if process.wait(10) != 0:
                raise SystemExit(f"the agent ended with exit code {process.returncode}")


def gateways(ports: Sequence[int]) -> list[pb.Gateway]:
    """Some that answer, by address and by name, one that is dead, and one that has no address."""
    (dead,) = free_ports(1)
    found = [pb.Gateway(id=f"gw-{port}", host="127.0.0.1", port=port) for port in ports]
    return [
        *found,
        pb.Gateway(id="by-name", host="localhost", port=ports[0]),
        pb.Gateway(id="dead", host="192.0.2.1", port=dead),
        pb.Gateway(id="nameless", host="no-such-name.invalid", port=1),
    ]


async def watch(agent: Agent, controllers: Controllers, beats: int) -> list[Sample]:
    """Sample until `beats` telemetry beats have come."""
    step, samples = max(1, beats // SAMPLES), list[Sample]()
    began = moved = reloaded = time.monotonic()
    heard = 0
    while heard < beats:
        await asyncio.sleep(0.05)
        now = time.monotonic()
        if agent.process.poll() is not None:
            raise SystemExit(f"the agent ended with exit code {agent.process.returncode}")
        if now - moved > (STUCK_S if heard else READY_S):
            raise SystemExit(f"no beat within {now - moved:.0f} s, after {heard}")
        if controllers.telemetry > heard:
            heard, moved = controllers.telemetry, now
        if now - reloaded > RELOAD_S:
            agent.reload()
            reloaded = now
        if heard >= step * (len(samples) + 1):
            samples.append(await agent.sample(heard, now - began))
            if len(samples) % 10 == 0:
                print(samples[-1], file=sys.stderr, flush=True)
    return samples


def figures(samples: Sequence[Sample]) -> dict[str, float]:
    """What the curve says after the warm-up."""
    warm = [each for each in samples if each.beats >= WARM_SHARE * samples[-1].beats]
    fifth = max(1, len(warm) // 5)
    slope, _ = statistics.linear_regression([each.beats for each in warm], [each.rss_mib for each in warm])
    found = {
        "beats": float(samples[-1].beats),
        "seconds": samples[-1].seconds,
        "rss_slope_mib_per_100k_beats": slope * 100_000,
    }
    for name, start in (
        ("rss_mib", "after_warmup"),
        ("fds", "start"),
        ("threads", "start"),
        ("tasks", "start"),
    ):
        values = [float(getattr(each, name)) for each in warm]
        found[f"{name}_{start}"] = statistics.median(values[:fifth])
        found[f"{name}_end"] = statistics.median(values[-fifth:])
        found[f"{name}_most"] = max(values)
    return found


async def run(beats: int) -> tuple[list[Sample], dict[str, float]]:
    """The whole run."""
    with sources() as ports:
        named = gateways(ports["gateways"])
        async with Controllers(free_ports(CONTROLLERS), named, random.Random(SEED)) as controllers:
            with agent(ports, controllers.ports) as process:
                samples = await watch(process, controllers, beats)
                return samples, controllers.counts


def columns(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """The samples, one list a figure."""
    return {field.name: [getattr(each, field.name) for each in samples] for field in fields(Sample)}


def picture(samples: Sequence[Sample]) -> str:
    """The curves."""
    curves = [
        Curve("resident memory, MiB", [each.rss_mib for each in samples]),
        Curve("descriptors", [each.fds for each in samples]),
        Curve("tasks", [each.tasks for each in samples]),
        Curve("threads", [each.threads for each in samples]),
    ]
    return draw(
        "The agent over a compressed day", "telemetry beats", [each.beats for each in samples], curves
    )


def main() -> None:
    """Run and report; the picture stands beside the JSON file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, help="write the result here too, and an SVG beside it")
    parser.add_argument("--beats", type=int, default=BEATS, help="telemetry beats to run for")
    options = parser.parse_args()
    samples, counts = asyncio.run(run(options.beats))
    found = figures(samples) | counts
    report("agent_long_run", SEED, found, options.json, {"curve": columns(samples)})
    if options.json is not None:
        options.json.with_suffix(".svg").write_text(picture(samples))


if __name__ == "__main__":
    main()
