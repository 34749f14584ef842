"""Live beside simulated: what agrees, and the reasons given where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace_lab.load.records import Record
from headrace_lab.validate.both import read_records
from headrace_lab.validate.compare import Comparison, compare, figures


def record(number: int, ttft_ms: float | None, late_ms: float = 0.0) -> Record:
    return Record(
        id=number,
        sent_s=number * 0.1,
        late_ms=late_ms,
        kind="short",
        model="m",
        prompt_tokens=10,
        prompt_bytes=40,
        max_tokens=5,
        status=200 if ttft_ms is not None else 0,
        cell="c",
        ttft_ms=ttft_ms,
        e2e_ms=500.0,
        done=ttft_ms is not None,
    )


def run(factor: float, late_ms: float = 0.0) -> list[Record]:
    return [record(n, factor * (100 + n), late_ms) for n in range(200)]


def compared(live: list[Record], *sims: list[Record], busy: float = 0.2) -> Comparison:
    return compare("homogeneous", "rr", 8.0, live, sims, 5.0, busy)


def test_what_is_within_a_seventh_agrees_and_needs_no_reason() -> None:
    found = compared(run(1.1), run(1.0), run(1.02))
    assert found.agrees
    assert found.sides["p95"].difference == pytest.approx(1.1 / 1.01 - 1)
    assert found.reasons() == []


def test_warm_up_and_failures_do_not_count() -> None:
    live = run(1.0)
    live[3] = record(3, 99_999.0)
    live[120] = record(120, None)
    found = compared(live, run(1.0))
    assert found.sides["p95"].live == pytest.approx(compared(run(1.0), run(1.0)).sides["p95"].live, rel=0.01)


def test_a_late_driver_and_a_busy_machine_are_named() -> None:
    found = compared(run(1.5, late_ms=80.0), run(1.0), busy=4.0)
    assert not found.agrees
    said = " ".join(found.reasons())
    assert "80 ms late" in said
    assert "load average 4.0" in said
    assert "ms from its simulated time" in said


def test_luck_is_named_where_it_makes_as_much() -> None:
    found = compared(run(1.3), run(1.0), run(1.0), run(1.4))
    assert any("other luck" in reason for reason in found.reasons())


def test_what_nothing_explains_is_said_to_be_so() -> None:
    shifted = [record(n, 1.0 * (100 + n)) for n in range(200)]
    # Only the tail differs: the median request does not.
    tail = [r if n < 160 else record(n, 3.0 * (100 + n)) for n, r in enumerate(shifted)]
    assert compared(tail, shifted).reasons() == ["nothing that was measured explains it: the models differ"]


def test_a_side_without_answers_agrees_with_nothing() -> None:
    found = compared([record(n, None) for n in range(100)], run(1.0))
    assert not found.agrees
    assert "no whole answer" in " ".join(found.reasons())


def test_figures_tell_the_greatest_difference() -> None:
    named = figures([compared(run(1.1), run(1.0)), compared(run(0.7), run(1.0))])
    assert named["difference_max"] == pytest.approx(0.3)
    assert (named["agree"], named["comparisons"]) == (1.0, 2.0)


def test_records_are_read_as_a_live_run_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    lines = [{"arm": arm, "condition": "", **record(n, 10.0).as_json()} for n, arm in enumerate("ab")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = read_records(path)
    assert list(found) == ["a", "b"]
    assert found["b"] == [record(1, 10.0)]
