"""A piece of the matrix, from the scenario file to its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace_lab.matrix.pool import informed
from headrace_lab.matrix.work import Bench, Piece, work
from headrace_lab.sim.sustain import PRECISION

PIECE = Piece("homogeneous", "code_heavy", ("rr", "oracle"), ("middle",), 0, 1, 1, quick=True)


def test_a_later_repetition_takes_fewer_runs_and_finds_as_much() -> None:
    first = work(PIECE)
    assert [row.arm for row in first.rows] == ["rr", "oracle"]
    assert all(1 < row.failed_rps / row.sustainable_rps <= 1 + PRECISION + 1e-9 for row in first.rows)
    assert first.below is None, "a quick piece leaves it out"
    again = work(informed(PIECE, first))
    assert sum(row.runs for row in again.rows) < sum(row.runs for row in first.rows)
    for old, new in zip(first.rows, again.rows, strict=True):
        assert new.sustainable_rps == pytest.approx(old.sustainable_rps, rel=2 * PRECISION)
        assert new.slo_ms == old.slo_ms


def test_below_saturation_all_arms_answer_the_same_requests() -> None:
    bench = Bench(replace(PIECE, arms=("rr", "lr"), unloaded_s=1.0))
    found = bench.below(6.0)
    rr, lr = found.ttft_ms["rr"], found.ttft_ms["lr"]
    assert len(rr) == len(lr) >= 900
    assert found.rps == 6.0
    assert rr != lr
