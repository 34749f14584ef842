"""A GPU host in processes: engines at work, an exporter, gateways, and the agent that watches them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from headrace_pb.v1 import telemetry_pb2 as pb

CELLS: Final = 8
GATEWAYS: Final = 3
END_S: Final = 5.0


@asynccontextmanager
async def gateways() -> AsyncIterator[list[pb.Gateway]]:
    """Addresses that answer ICMP and accept TCP."""

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    found = []
    async with AsyncExitStack() as stack:
        for number in range(1, GATEWAYS + 1):
            host = f"127.0.0.{number}"
            server = await stack.enter_async_context(await asyncio.start_server(accept, host, 0))
            found.append(pb.Gateway(id=f"gw-{number}", host=host, port=server.sockets[0].getsockname()[1]))
        yield found


@contextmanager
def sources(seed: int) -> Iterator[tuple[list[int], int]]:
    """The ports of the engines and of the exporter, each a process."""
    with ExitStack() as stack:
        engines = [stack.enter_context(_source("engine", seed + number)) for number in range(CELLS)]
        exporter = stack.enter_context(_source("gpus", seed))
        yield [_port(each) for each in engines], _port(exporter)


@contextmanager
def _source(kind: str, seed: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.fake_source", kind, str(seed)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        _end(process)


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@asynccontextmanager
async def agent(settings: dict[str, Any]) -> AsyncIterator[psutil.Process]:
    """The agent as a process; it must end in order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.yaml"
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        process = _start_agent(path)
        try:
            yield psutil.Process(process.pid)
            process.terminate()
            if await asyncio.to_thread(process.wait, END_S) != 0:
                raise SystemExit(f"the agent ended with exit code {process.returncode}")
        finally:
            _end(process)


def _start_agent(config: Path) -> subprocess.Popen[str]:
    program = Path(sys.executable).with_name("headrace-agent")
    return subprocess.Popen([str(program), "run", "--config", str(config)], text=True)


def settings(engines: list[int], exporter: int, controller: int, metrics: int) -> dict[str, Any]:
    """The agent's settings file: nothing that has a default is set but addresses."""
    return {
        "node": "bench",
        "site": "bench",
        "controllers": [{"address": f"127.0.0.1:{controller}"}],
        "cells": [
            {"id": f"cell-{number}", "url": f"http://127.0.0.1:{port}", "gpus": [number]}
            for number, port in enumerate(engines)
        ],
        "hardware": {"dcgm_url": f"http://127.0.0.1:{exporter}/metrics"},
        "metrics_listen": f"127.0.0.1:{metrics}",
        "log": {"level": "warning"},
    }


class Usage:
    """CPU time and memory of a process and all its children."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.rss_mib = 0.0

    def cpu_s(self) -> float:
        """User and system time so far; children that ended count through their parent."""
        spent = 0.0
        for each in self._family():
            times = each.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
        return spent

    def look(self) -> None:
        """Note the memory in use now."""
        now = sum(each.memory_info().rss for each in self._family())
        self.rss_mib = max(self.rss_mib, now / 2**20)

    def _family(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]
