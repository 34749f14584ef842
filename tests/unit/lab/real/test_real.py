"""Runs over real engines: their figures, their conditions, and the care for the cache directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace_lab.demo.observe import read_sample
from headrace_lab.real import environment, figures
from headrace_lab.real.engines import engine, real
from headrace_lab.real.environment import MARK, RECIPE, STAMP, Environment, default_root
from headrace_lab.real.figures import Outcome
from headrace_lab.stack.program import StackError
from tests.unit.lab.demo.making import cell_json, fleet_json, history
from tests.unit.lab.load.making import record

GOOD = Outcome(
    long_sent=180,
    long_share_last=0.01,
    refused=8,
    failed=0,
    engine_400s=8,
    error_rate_seen=0.9,
    weight_start=100,
    weight_end=1,
    incomplete=(),
    nacks=0,
)


def test_a_good_run_passes() -> None:
    assert all(check.ok for check in figures.checks(GOOD))


@pytest.mark.parametrize(
    "change",
    [
        {"long_sent": 149},
        {"long_share_last": 0.031},
        {"long_share_last": None},
        {"refused": 0},
        {"error_rate_seen": 0.0},
        {"error_rate_seen": None},
        {"weight_end": 100},
        {"incomplete": ("small-1: no kv_fill",)},
        {"failed": 1},
    ],
)
def test_each_condition_can_fail(change: dict[str, Any]) -> None:
    made = figures.checks(replace(GOOD, **change))
    assert [check.enforced for check in made if not check.ok] == [True]


def test_only_the_small_engine_s_400_to_a_long_prompt_is_a_refusal() -> None:
    refusal = record(cell="s", status=400, kind="long", done=False)
    assert figures.is_refusal(refusal, "s")
    for change in ({"cell": "x"}, {"status": 500}, {"kind": "short"}):
        assert not figures.is_refusal(replace(refusal, **change), "s")


def test_the_share_counts_long_prompts_sent_late_enough() -> None:
    records = [
        record(cell="s", kind="long", sent_s=5.0),
        record(cell="s", kind="short", sent_s=50.0),
        record(cell="s", kind="long", sent_s=41.0, status=400),
        *[record(cell="l", kind="long", sent_s=45.0)] * 3,
        record(cell="", kind="long", sent_s=45.0, status=0),
    ]
    assert figures.long_share(records, "s", 40.0) == 0.25
    assert figures.long_share(records, "s", 55.0) is None


def test_the_error_rate_is_the_highest_that_was_seen() -> None:
    def at(moment: float, rate: float | None) -> Any:
        signals = {"error_rate": rate, "kv_fill": 0.0, "queue_depth": 0.0}
        return read_sample(fleet_json(cell_json("s", signals=signals, error_rate=None)), moment)

    assert figures.error_rate_seen(history(at(1, None), at(2, 0.7), at(3, 0.2)), "s") == 0.7
    assert figures.error_rate_seen(history(at(1, None)), "s") is None
    assert figures.error_rate_seen(history(), "s") is None


def test_what_is_missing_is_named() -> None:
    assert figures.incomplete(None, ["s"]) == ("the controller never answered",)
    cells = [cell_json("a"), cell_json("b", state="LOADING"), cell_json("c", signals={"queue_depth": 0.0})]
    found = figures.incomplete(read_sample(fleet_json(*cells), 0.0), ["a", "b", "c", "d"])
    assert found == ("b: LOADING", "c: no kv_fill", "d: unknown")


def build(root: Path, recipe: object) -> Environment:
    made = Environment(root)
    made.bin.mkdir(parents=True)
    made.model.mkdir()
    (made.bin / "vllm").touch()
    (made.model / "config.json").touch()
    (root / STAMP).write_text(recipe if isinstance(recipe, str) else json.dumps(recipe), encoding="utf-8")
    return made


def test_only_a_finished_build_by_this_recipe_is_used(tmp_path: Path) -> None:
    """A build that was cut short, or one of another version, must not be half used."""
    assert build(tmp_path / "good", RECIPE).is_built()
    assert not build(tmp_path / "old", {**RECIPE, "vllm": "0.1"}).is_built()
    assert not build(tmp_path / "broken", "{").is_built()
    cut = build(tmp_path / "cut", RECIPE)
    (cut.bin / "vllm").unlink()
    assert not cut.is_built()
    assert not Environment(tmp_path / "nothing").is_built()


def test_a_directory_of_somebody_else_is_never_touched(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").touch()
    with pytest.raises(StackError, match="choose another"):
        environment.claim(theirs, environment.MARK)
    assert [p.name for p in theirs.iterdir()] == ["precious"]
    ours = tmp_path / "deep" / "ours"
    environment.claim(ours, environment.MARK)
    assert (ours / MARK).exists()
    environment.claim(ours, environment.MARK)


def test_a_cache_that_cannot_be_written_is_said() -> None:
    with pytest.raises(StackError, match="choose a --cache-dir"):
        environment.claim(Path("/proc/none/here"), environment.MARK)


def test_the_cache_lies_in_the_user_s_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/headrace/real-vllm")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_root() == Path.home() / ".cache" / "headrace" / "real-vllm"


def test_one_small_engine_and_two_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = iter(range(20000, 20100))
    monkeypatch.setattr("headrace_lab.real.engines.free_ports", lambda n: [next(ports) for _ in range(n)])
    monkeypatch.setattr("headrace_lab.demo.fleet.free_ports", lambda n: [next(ports) for _ in range(n)])
    fleet = real()
    assert sorted(cell.max_model_len for cell in fleet.cells) == [1024, 4096, 4096]
    spec = engine(fleet.cells[0], Environment(Path("/c")))
    at = spec.command.index("--max-model-len")
    assert spec.command[at + 1] == "1024"
    assert spec.env["PATH"].startswith("/c/venv/bin:")
    assert not spec.ours
