"""What becomes of a live run when programs fail one of its arms."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headrace_lab.live import run as live_run
from headrace_lab.live.ask import Options, look_up
from headrace_lab.live.peers import PeerMissingError
from headrace_lab.live.run import Collected, live
from headrace_lab.scenarios import packaged
from headrace_lab.stack.program import StackError
from tests.unit.lab.live.making import at, run, sample


def pretend(monkeypatch: pytest.MonkeyPatch, **failing: Exception) -> None:
    """Arms that end at once: whole, or as `failing` says."""

    async def arm(ask: Any, name: str, *rest: Any) -> None:
        collected = next(each for each in rest if isinstance(each, Collected))
        if name.replace("-", "_") in failing:
            raise failing[name.replace("-", "_")]
        samples = tuple(sample(float(t), east_1=1) for t in range(11))
        collected.runs.append(run(name, records=(at(5.0),), samples=samples))

    monkeypatch.setattr(live_run, "_arm", arm)


async def ran(tmp_path: Path, *arms: str) -> tuple[int, dict[str, Any], str]:
    path, said = tmp_path / "x.json", StringIO()
    options = Options("homogeneous", arms=arms, seconds=10.0, json_path=path, keep_logs=tmp_path / "logs")
    code = await live(look_up(options, packaged()), Console(file=said, width=150))
    return code, json.loads(path.read_text(encoding="utf-8")), said.getvalue()


async def test_whole_arms_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    code, data, _ = await ran(tmp_path, "rr", "weights")
    assert (code, data["worked"], set(data["arms"])) == (0, True, {"rr", "weights"})


async def test_an_arm_that_fails_takes_the_others_figures_with_it_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of measurement stood and fell with the last arm's end."""
    pretend(monkeypatch, lr=StackError("envoy ended by itself"))
    code, data, said = await ran(tmp_path, "rr", "lr", "weights")
    assert (code, data["worked"], set(data["arms"])) == (1, False, {"rr", "weights"})
    assert data["checks"]["arms that did not run to their end"] == {"ok": False, "found": "lr"}
    assert data["notes"][-1] == "arm lr did not run to its end: envoy ended by itself"
    assert "envoy ended by itself" in said


async def test_errors_of_several_programs_are_all_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ExceptionGroup("two", [StackError("one"), ExceptionGroup("in", [StackError("other")])])
    pretend(monkeypatch, lr=both)
    _, data, _ = await ran(tmp_path, "rr", "lr")
    assert data["notes"][-1].endswith(": one; other")


async def test_where_no_arm_ran_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, rr=StackError("no port"))
    with pytest.raises(StackError, match="no port"):
        await ran(tmp_path, "rr")
    assert not (tmp_path / "x.json").exists()


async def test_a_peer_that_cannot_be_had_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, vllm_router=PeerMissingError("no wheel"))
    code, data, _ = await ran(tmp_path, "rr", "vllm-router")
    assert (code, data["worked"]) == (0, True)
    assert data["notes"] == ["arm vllm-router was left out: no wheel"]
