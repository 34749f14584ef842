"""What the matrix says of its rows."""

from __future__ import annotations

import math

import pytest

from headrace_lab.matrix.run import loads_of, pieces
from headrace_lab.matrix.summary import Interval, bootstrap, figures, summarise
from headrace_lab.matrix.work import Piece, Row
from headrace_lab.scenarios import packaged


def row(load: str, arm: str, repetition: int, rps: float) -> Row:
    return Row("perturbed", load, arm, "middle", repetition, 1, 1000.0, rps, rps * 1.01, 8)


ROWS = [
    row(load, arm, repetition, base * factor * (1 + 0.01 * repetition))
    for load, base in (("short", 10.0), ("long", 1.0))
    for arm, factor in (("rr", 1.0), ("weights", 1.5 if load == "short" else 1.005), ("oracle", 2.0))
    for repetition in range(3)
]


def test_ratios_are_of_the_same_seeds_and_intervals_say_what_is_sure() -> None:
    lines = {(line.load, line.arm): line for line in summarise(ROWS, 2000, 0.95)}
    short, long = lines["short", "weights"], lines["long", "weights"]
    assert short.sustainable_rps.value == pytest.approx(15.15)
    assert short.vs_rr.value == pytest.approx(1.5)
    assert short.vs_rr.low == pytest.approx(1.5)
    assert short.vs_oracle.value == pytest.approx(0.75)
    assert lines["short", "oracle"].vs_weights.value == pytest.approx(2.0 / 1.5)
    assert short.apart_from_rr
    assert not long.apart_from_rr
    assert lines["short", "rr"].vs_rr.value == 1.0


def test_figures_name_the_least_and_the_median_over_loads() -> None:
    found = figures(summarise(ROWS, 500, 0.95), 0.05)
    assert found["ratio_vs_rr.short.middle.weights"] == pytest.approx(1.5)
    assert found["ratio_vs_rr_min.middle.weights"] == pytest.approx(1.005)
    assert found["ratio_vs_weights.short.middle.oracle"] == pytest.approx(2.0 / 1.5)
    assert found["ratio_vs_rr_median.middle.weights"] == pytest.approx(1.2525)
    assert found["loads_apart_from_rr.middle.weights"] == 1.0


def test_an_unknown_rate_makes_its_ratios_unknown_and_no_others() -> None:
    rows = [row("short", "rr", 0, math.nan), row("short", "weights", 0, 5.0)]
    lines = {line.arm: line for line in summarise(rows, 100, 0.95)}
    assert lines["weights"].sustainable_rps.value == 5.0
    assert math.isnan(lines["weights"].vs_rr.value)
    assert math.isnan(lines["weights"].vs_oracle.value)


def test_one_repetition_has_no_interval_and_claims_nothing() -> None:
    rows = [row("short", "rr", 0, 1.0), row("short", "weights", 0, 5.0)]
    lines = {line.arm: line for line in summarise(rows, 100, 0.95)}
    assert lines["weights"].vs_rr.value == 5.0
    assert math.isnan(lines["weights"].vs_rr.low)
    assert not lines["weights"].apart_from_rr
    assert figures(list(lines.values()), 0.05)["not_inferior_rps.middle.weights"] == 0.0


def test_the_better_of_rr_and_lr_is_what_an_arm_must_not_be_inferior_to() -> None:
    rows = [
        row("short", arm, repetition, rps)
        for repetition in range(3)
        for arm, rps in (("rr", 10.0), ("lr", 12.0 if repetition else 9.0), ("weights", 11.0))
    ]
    line = next(each for each in summarise(rows, 500, 0.95) if each.arm == "weights")
    assert line.vs_plain.value == pytest.approx((1.1 + 2 * 11 / 12) / 3)
    assert figures([line], 0.05)["not_inferior_rps.middle.weights"] == 0.0
    assert figures([line], 0.09)["not_inferior_rps.middle.weights"] == 1.0


def test_bootstrap_holds_the_value_and_is_the_same_each_time() -> None:
    first = bootstrap([1.0, 2.0, 4.0], 1000, 0.9)
    assert first == bootstrap([1.0, 2.0, 4.0], 1000, 0.9)
    assert first.low <= first.value <= first.high
    assert not first.apart(Interval(3.0, first.high, 9.0))


def test_the_whole_matrix_has_all_its_pieces_and_the_quick_one_few() -> None:
    catalogue = packaged()

    def planned(quick: bool, traces: bool) -> list[Piece]:
        return pieces(catalogue, "perturbed", loads_of(catalogue, quick, traces), quick, seed=1)

    whole = planned(quick=False, traces=False)
    assert len(whole) == 8 * 3
    arms = len(catalogue.matrix_arms)
    assert sum(len(piece.arms) * len(piece.tiers) for piece in whole) == 8 * arms * 3 * 3
    assert len({(piece.load, piece.seed) for piece in whole}) == len(whole)
    assert len(planned(quick=False, traces=True)) == 13 * 3
    quick = planned(quick=True, traces=False)
    assert [piece.tiers for piece in quick] == [("middle",)] * 3
