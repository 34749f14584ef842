"""`headrace-lab demo` as people run it, without a terminal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psutil

from headrace_lab.stack.program import console_script

SECONDS = 15
LIMIT_S = 100.0
DETECT_LIMIT_MS = 15_000.0
"""For 250 ms on an idle machine."""
OF_SPEED = {"killed endpoint gone from Envoy", "programs end on SIGTERM"}
"""Checks that a busy machine may fail."""


async def demo(directory: Path, result: Path) -> tuple[int, str]:
    """Run it; exit status and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(console_script("headrace-lab"), "demo", "--seconds", str(SECONDS), "--rps", "10"),
        *("--json", str(result), "--keep-logs", str(directory)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_the_demo_works_and_writes_its_result(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    status, said = await demo(tmp_path / "run", file)
    print(said)
    text = file.read_text(encoding="utf-8")
    assert text, said
    result = json.loads(text)
    failed = set(result["failed_checks"])
    assert failed <= OF_SPEED, said
    assert status == (1 if failed else 0)
    assert ("demo works." in said) == (status == 0)
    check_form(result)
    check_figures(result)
    records = file.with_suffix(".ndjson").read_text(encoding="utf-8").splitlines()
    assert len(records) == result["arms"]["v3"]["requests"]
    left = [p for p in psutil.process_iter() if str(tmp_path) in " ".join(command_line(p))]
    assert left == []


def check_form(result: dict[str, Any]) -> None:
    """The form that all results have."""
    assert (result["scenario"], result["mode"]) == ("demo", "live")
    assert isinstance(result["seed"], int)
    assert result["seconds"] == SECONDS
    cells = {each["cell"] for each in result["fleet"]}
    assert len(cells) == len(result["fleet"]) == 9
    assert len({each["site"] for each in result["fleet"]}) == 3
    (arm,) = result["arms"].values()
    assert 0.9 <= arm["success_rate"] <= 1
    for times in (arm["ttft_ms"], arm["e2e_ms"]):
        assert 0 < times["p50"] <= times["p95"] <= times["p99"]
    assert arm["per_cell"].keys() == cells
    served = arm["per_cell"].values()
    assert all(each["requests"] > 0 for each in served), "a cell got no request"
    assert abs(sum(each["share"] for each in served) - 1) < 1e-3
    assert sum(each["requests"] for each in served) <= arm["requests"]
    for value in result["figures"].values():
        assert value is None or isinstance(value, int | float)


def check_figures(result: dict[str, Any]) -> None:
    figures = result["figures"]
    assert 0 < figures["detect_ms"] <= DETECT_LIMIT_MS
    assert 0 <= figures["cut_at_kill"] <= figures["in_flight_at_kill"] + 3
    assert figures["post_kill_success"] >= 0.995
    assert figures["xds_nacks"] == 0
    assert figures["unexplained_failures"] == 0
    assert (figures["leftover_processes"], figures["leftover_ports"]) == (0, 0)
    ends = [end for end in result["programs"] if end["name"] != "envoy" and not end["planned"]]
    assert len(ends) == 8 + 3 + 3 + 1, "cells but the killed one, exporters, agents, the controller"
    assert all(end["code"] == 0 and not end["killed"] for end in ends)


def command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
