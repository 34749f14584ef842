"""Commands that run to their end, and the one builder of the engines' environment."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from headrace_lab.real import environment
from headrace_lab.real.environment import Environment
from headrace_lab.stack import once
from headrace_lab.stack.once import run_once
from headrace_lab.stack.program import StackError
from headrace_shared.clock import Clock, SystemClock

CLOCK = SystemClock()


async def run(code: str, log: Path, said: list[str], within_s: float = 60.0) -> None:
    await run_once("the step", (sys.executable, "-c", code), log, CLOCK, within_s=within_s, said=said.append)


async def test_output_goes_to_the_log_and_the_start_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    await run("print('hello')", tmp_path / "log", said)
    assert said == ["the step ..."]
    assert (tmp_path / "log").read_text(encoding="utf-8") == "hello\n"


async def test_a_failure_quotes_the_log(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"the step: failed with status 3(.|\n)*no room"):
        await run("import sys; print('no room'); sys.exit(3)", tmp_path / "log", [])


async def test_a_step_that_hangs_is_told_of_and_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "SAY_EVERY_S", 0.5)
    code = (
        "import subprocess, sys, time\n"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(c.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    said: list[str] = []
    with pytest.raises(StackError, match="not done after"):
        await run(code, tmp_path / "log", said, within_s=5.0)
    assert any("so far" in text for text in said)
    child = int((tmp_path / "log").read_text(encoding="utf-8"))
    for _ in range(1500):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"child {child} lives on")


async def test_of_two_at_once_one_builds_and_the_other_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []

    async def build(target: Environment, said: environment.Said, clock: Clock) -> None:
        built.append(target.root)
        await asyncio.sleep(0.7)
        target.bin.mkdir(parents=True)
        target.model.mkdir()
        (target.bin / "vllm").touch()
        (target.model / "config.json").touch()
        (target.root / environment.STAMP).write_text(environment.json.dumps(environment.RECIPE))

    monkeypatch.setattr(environment, "_build", build)
    said: list[str] = []
    root = tmp_path / "cache"
    both = await asyncio.gather(*(environment.ensure(root, said.append, CLOCK) for _ in range(2)))
    assert built == [root]
    assert all(each.is_built() for each in both)
    assert any("waiting" in text for text in said)
