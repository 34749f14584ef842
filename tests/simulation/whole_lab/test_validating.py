"""`validate` from its scenarios to its result, with a simulation in the place of live programs."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headrace_lab.live.ask import Ask, Options, look_up
from headrace_lab.scenarios import packaged
from headrace_lab.sim.run import arrivals_of, run_arm, setup_of
from headrace_lab.validate.run import Job, validate


def ask(seconds: float = 20.0) -> Ask:
    options = Options(name="heterogeneous", arms=("rr", "weights"), rps=6.0, seconds=seconds, seed=3)
    return look_up(options, packaged())


def pretend(slower: float, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
    """A live run that is a simulation with other luck, its first tokens so many times later."""

    async def run_live(given: Ask, console: Console) -> int:
        lucky = replace(given, options=replace(given.options, seed=99))
        path = given.options.json_path
        assert path is not None
        with path.with_suffix(".ndjson").open("w", encoding="utf-8") as file:
            for arm in given.arms:
                run = run_arm(lucky, arm, setup_of(given, "none"), arrivals_of(given))
                for record in run.seen.records:
                    later = replace(record, ttft_ms=(record.ttft_ms or 0.0) * slower)
                    file.write(json.dumps({"arm": arm, "condition": "", **later.as_json()}) + "\n")
        return status

    monkeypatch.setattr("headrace_lab.validate.both.run_live", run_live)
    monkeypatch.setattr("headrace_lab.validate.both.LUCKS", 3)


def result(path: Path, console: io.StringIO) -> tuple[int, dict[str, object]]:
    status = asyncio.run(validate(Job((ask(),), path, quick=False), Console(file=console, width=150)))
    return status, json.loads(path.read_text(encoding="utf-8"))


def test_a_simulation_agrees_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(1.0, monkeypatch)
    status, data = result(tmp_path / "v.json", io.StringIO())
    figures = data["figures"]
    assert isinstance(figures, dict)
    assert status == 0
    assert (figures["agree"], figures["comparisons"]) == (2.0, 2.0)
    assert abs(figures["ttft_p50_difference.heterogeneous.rr"]) < 0.1


def test_what_differs_is_said_and_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(2.0, monkeypatch)
    shown = io.StringIO()
    status, data = result(tmp_path / "v.json", shown)
    figures = data["figures"]
    assert isinstance(figures, dict)
    assert (status, figures["agree"]) == (0, 0.0)
    assert "from its simulated time" in shown.getvalue()


def test_a_live_run_that_cannot_be_trusted_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(1.0, monkeypatch, status=1)
    status, data = result(tmp_path / "v.json", io.StringIO())
    assert (status, data["worked"]) == (1, False)
