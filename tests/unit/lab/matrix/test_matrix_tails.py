"""P99 below saturation on the same requests, and the files of a matrix."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace_lab.matrix.result import Matrix, write
from headrace_lab.matrix.run import assemble, claims
from headrace_lab.matrix.tails import figures, tails
from headrace_lab.matrix.work import Below, Done, Row
from headrace_lab.scenarios import packaged
from tests.support.clock import FakeClock


def below(load: str, repetition: int, factor: float, lr: float = 1.2) -> Below:
    drawn = np.random.default_rng(repetition).exponential(100.0, 1000)
    ttft: dict[str, list[float | None]] = {
        "rr": [float(v) for v in drawn],
        "lr": [float(v) * lr for v in drawn],
        "weights": [float(v) * factor for v in drawn],
    }
    return Below(load, repetition, 7.0, ttft)


def test_ratios_are_of_the_same_requests_so_that_they_are_sure() -> None:
    lines = {line.arm: line for line in tails([below("short", n, 0.9) for n in range(3)], 0.95)}
    ours = lines["weights"].vs_plain
    assert ours.value == pytest.approx(0.9)
    assert (ours.low, ours.high) == (pytest.approx(0.9), pytest.approx(0.9))
    assert lines["weights"].samples == 3000
    assert lines["lr"].vs_plain.value == pytest.approx(1.2)


def test_the_better_plain_arm_is_the_measure() -> None:
    (line,) = [t for t in tails([below("short", 0, 0.9, lr=0.5)], 0.95) if t.arm == "weights"]
    assert line.vs_plain.value == pytest.approx(1.8)
    assert figures([line], 0.05)["not_inferior_p99.weights"] == 0.0


def test_noise_of_unlike_requests_makes_the_interval_wide() -> None:
    found = below("short", 0, 1.0)
    found.ttft_ms["weights"] = list(np.random.default_rng(9).exponential(100.0, 1000))
    (line,) = [t for t in tails([found], 0.95) if t.arm == "weights"]
    assert line.vs_plain.high - line.vs_plain.low > 0.1


def test_requests_without_a_token_make_a_tail_endless() -> None:
    found = below("short", 0, 1.0)
    found.ttft_ms["weights"][:50] = [None] * 50
    (line,) = [t for t in tails([found], 0.95) if t.arm == "weights"]
    assert math.isinf(line.p99_ms)
    assert figures([line], 0.05)["not_inferior_p99.weights"] == 0.0


def matrix() -> Matrix:
    results = []
    for repetition in range(3):
        rows = tuple(
            Row("homogeneous", "baseline_mixed", arm, "middle", repetition, 1, 900.0, rps, rps * 1.01, 6)
            for arm, rps in (("rr", 10.0), ("lr", 8.0), ("weights", 9.9 + 0.01 * repetition))
        )
        results.append(
            Done("baseline_mixed", repetition, 0.4, rows, below("baseline_mixed", repetition, 1.0), 3.0)
        )
    return assemble("homogeneous", ["baseline_mixed"], reversed(results), packaged(), {"seed": 1})


def test_a_matrix_says_in_words_what_is_not_inferior() -> None:
    said = claims(matrix())
    assert [each.split(",")[0] for each in said] == ["lr", "weights"]
    assert "not inferior (5%) to the better of rr and lr in 1 by sustainable RPS" in said[1]
    assert "in 1 by P99 below saturation" in said[1]


def test_one_repetition_claims_nothing() -> None:
    whole = matrix()
    rows = tuple(row for row in whole.rows if row.repetition == 0)
    assert claims(replace(whole, rows=rows)) == ["One repetition has no interval: nothing is claimed."]


def test_its_files_hold_rows_lines_tails_and_pictures(tmp_path: Path) -> None:
    write(tmp_path, matrix(), FakeClock())
    data = json.loads((tmp_path / "matrix.homogeneous.json").read_text(encoding="utf-8"))
    assert data["scenario"] == "matrix/homogeneous (baseline_mixed)"
    assert data["figures"]["not_inferior_rps.middle.weights"] == 1.0
    assert data["figures"]["p99_vs_plain.baseline_mixed.weights"] == pytest.approx(1.0)
    assert [row["repetition"] for row in data["rows"]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len((tmp_path / "matrix.homogeneous.csv").read_text(encoding="utf-8").splitlines()) == 10
    svg = (tmp_path / "matrix.homogeneous.middle.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "baseline_mixed" in svg
