"""Pressure over time: smoothing, staleness, quorum, hold and decay, vantage, explanation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure import NEUTRAL, PressureModel, Pressures
from headrace_controller.pressure.reach import LEAST
from headrace_controller.settings import PressureSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import INDEX, NAMES
from tests.unit.controller.inventory.builders import ENOUGH, beat, facts, hello, telemetry

FULL = dict.fromkeys(ENOUGH, 1.0) | {"queue_depth": 32.0}
FULL_PRESSURE = 0.52 / 0.67
"""Those four signals at their tops, and an error excess of 0."""


class Scored:
    """READY cells, a model and time; every cell's beat is sent anew each half second."""

    def __init__(
        self, *cells: str, gateways: tuple[str, ...] = ("g",), jump: float = 1.0, **settings: Any
    ) -> None:
        self.fleet = Fleet(gateways)
        for number, cell in enumerate(cells):
            self.fleet.register(f"n-{cell}", "s", hello(facts(cell, port=8000 + number)), 0.0)
        self.fleet.state[: len(cells)] = CellState.READY
        self.model = PressureModel(PressureSettings(**settings), len(gateways), jump)
        self.signals: dict[str, dict[str, float] | None] = {cell: dict(ENOUGH) for cell in cells}
        self.now = 0.0

    def run(self, seconds: float, step: float = 0.05) -> Pressures:
        ends = self.now + seconds
        while True:
            for cell, signals in self.signals.items():
                if signals is not None:
                    self.fleet.apply(f"n-{cell}", telemetry(beat(cell, signals=signals)), self.now)
            found = self.model.tick(self.fleet, self.now)
            if self.now >= ends - 1e-9:
                return found
            self.now += step

    def pressure(self, cell: str, seconds: float = 0.0) -> float:
        return float(self.run(seconds).pressure[0, self.fleet.row(cell)])


def test_the_first_score_is_taken_as_it_is_and_later_ones_are_smoothed() -> None:
    scored = Scored("a", smoothing_s=1.0, settle_s=0.0)
    first = scored.pressure("a")
    assert first == pytest.approx(float(scored.run(0.0).raw[0, 0]))
    scored.signals["a"] = {**ENOUGH, "kv_fill": 1.0}
    after = scored.pressure("a", 1.0)
    raw = float(scored.run(0.0).raw[0, 0])
    assert (after - first) / (raw - first) == pytest.approx(1 - math.exp(-1.0), abs=0.02)
    assert scored.pressure("a", 10.0) == pytest.approx(raw, abs=1e-3)


def test_smoothing_does_not_depend_on_how_often_it_ticks() -> None:
    found = []
    for step in (0.01, 0.05, 0.25, 1.0):
        scored = Scored("a", settle_s=0.0)
        scored.run(0.0)
        scored.signals["a"] = {**ENOUGH, "queue_depth": 32.0}
        found.append(float(scored.run(1.0, step).pressure[0, 0]))
    assert found == pytest.approx([found[0]] * 4, abs=1e-6)


def test_a_jump_is_not_smoothed() -> None:
    scored = Scored("a", jump=0.3, smoothing_s=10.0)
    scored.run(1.0)
    scored.signals["a"] = FULL
    found = scored.run(0.0)
    assert found.pressure[0, 0] == found.raw[0, 0] == pytest.approx(FULL_PRESSURE)


def test_no_smoothing_when_set_to_zero() -> None:
    scored = Scored("a", smoothing_s=0.0)
    scored.run(1.0)
    scored.signals["a"] = FULL
    scored.now += 0.05
    assert scored.pressure("a") == pytest.approx(FULL_PRESSURE)


def test_stale_telemetry_is_absent_and_the_score_is_held_then_decays_to_the_pools_median() -> None:
    scored = Scored("a", "b", "c", stale_after_s=5.0, hold_s=5.0, decay_s=10.0)
    scored.signals["a"] = FULL
    scored.run(10.0)
    scored.signals["a"] = None
    median = scored.pressure("b")
    assert scored.pressure("a", 9.5) == pytest.approx(FULL_PRESSURE, abs=1e-3)
    assert not scored.run(0.0).quorum[0, 0]
    assert scored.pressure("a", 0.6 + 10.0) == pytest.approx(
        median + (FULL_PRESSURE - median) * math.exp(-1), abs=0.01
    )
    assert scored.pressure("a", 80.0) == pytest.approx(median, abs=0.01)


def test_a_cell_with_no_figures_yet_stands_at_its_pools_median() -> None:
    """Neither starved for ever nor flooded."""
    scored = Scored("a", "b", "c")
    scored.signals["a"] = {}
    assert scored.pressure("a", 1.0) == pytest.approx(scored.pressure("b"))
    alone = Scored("a")
    alone.signals["a"] = None
    assert alone.pressure("a", 1.0) == NEUTRAL


def test_too_few_signals_are_no_quorum() -> None:
    scored = Scored("a", quorum=3)
    scored.signals["a"] = {"queue_depth": 1.0, "kv_fill": 0.1}  # and an error excess not known
    assert not scored.run(0.1).quorum[0, 0]
    scored.signals["a"] = {"queue_depth": 1.0, "kv_fill": 0.1, "gpu_util": 0.1}
    assert scored.run(0.1).quorum[0, 0]


@pytest.mark.parametrize(("name", "lost"), [("engine", "queue_depth"), ("dcgm", "compute_active")])
@pytest.mark.parametrize("how", ["stale", "old"])
def test_a_source_that_does_not_move_loses_its_own_signals_only(name: str, lost: str, how: str) -> None:
    scored = Scored("a", quorum=1)
    status = pb.SOURCE_STATUS_STALE if how == "stale" else pb.SOURCE_STATUS_FAILED
    source = pb.SourceBeat(name=name, status=status, age_ms=100 if how == "stale" else 60_000)
    scored.fleet.apply("n-a", telemetry(beat("a", sources=[source])), 0.0)
    shares = {share.name: share for share in scored.model.tick(scored.fleet, 0.1).explain(0, 0)}
    engine = {"queue_depth", "kv_fill"}
    gone = engine if lost in engine else set(ENOUGH) - engine
    assert {each for each in ENOUGH if shares[each].raw is None} == gone


def test_a_pool_without_hardware_figures_is_scored_on_the_rest() -> None:
    scored = Scored("a")
    scored.signals["a"] = {"queue_depth": 4.0, "kv_fill": 0.25, "ttft_p95_s": 1.0}
    found = scored.run(0.1)
    assert found.quorum[0, 0]
    assert found.base[0, 0] == pytest.approx((0.20 * 4 / 32 + 0.12 * 0.25 + 0.15 * 0.2) / 0.62)


def test_pressure_depends_on_the_gateway_that_looks() -> None:
    scored = Scored("a", "b", gateways=("near", "far"))
    paths = [
        pb.PathBeat(gateway="near", rtt_ms=1.0, jitter_ms=0.1),
        pb.PathBeat(gateway="far", rtt_ms=120.0, jitter_ms=20.0),
    ]
    scored.fleet.apply("n-a", telemetry(paths=paths), 0.0)
    both_near = [pb.PathBeat(gateway=gateway, rtt_ms=1.0, jitter_ms=0.1) for gateway in ("near", "far")]
    scored.fleet.apply("n-b", telemetry(paths=both_near), 0.0)
    found = scored.run(0.0)
    row = scored.fleet.row("a")
    assert found.pressure[0, row] < found.pressure[1, row]
    other = scored.fleet.row("b")
    assert found.pressure[0, other] == found.pressure[1, other]


def path(rtt_ms: float | None, loss: float = 0.0) -> pb.Telemetry:
    known = {} if rtt_ms is None else {"rtt_ms": rtt_ms, "jitter_ms": rtt_ms / 10}
    return telemetry(paths=[pb.PathBeat(gateway="g", loss=loss, age_ms=0, **known)])


def test_a_path_over_which_nothing_comes_back_is_the_worst_there_is_and_not_an_absent_one() -> None:
    """Absent would be filled, and so look as good as the others'."""
    scored = Scored("a", "b", "c", "d")
    for cell in "abcd":
        scored.fleet.apply(f"n-{cell}", path(80.0), 0.0)
    alike = scored.run(0.0)
    scored.fleet.apply("n-b", path(None, loss=1.0), 0.0)
    scored.fleet.apply("n-c", path(None, loss=0.5), 0.0)
    found = scored.run(0.0)
    a, b, c = (scored.fleet.row(cell) for cell in "abc")
    assert found.raw[0, b] > found.raw[0, a] == pytest.approx(found.raw[0, c])
    assert found.raw[0, a] == alike.raw[0, a]
    shares = found.explain(0, b)
    rtt = shares[INDEX["rtt_ms"]]
    assert (rtt.raw, rtt.normalised, rtt.filled) == (None, 1.0, None)
    assert sum(share.contribution for share in shares) == pytest.approx(found.raw[0, b])


def quick(scorer: str = "v3", ttft_s: float = 0.04) -> Pressures:
    """Three cells of a quick pool, the last one far away."""
    scored = Scored("a", "b", "c", scorer=scorer)
    for cell, rtt_ms in zip("abc", (4.0, 4.0, 90.0), strict=True):
        scored.signals[cell] = ENOUGH | {"ttft_p95_s": ttft_s, "compute_active": 0.02}
        scored.fleet.apply(f"n-{cell}", path(rtt_ms), 0.0)
    for _ in range(60):
        for cell, rtt_ms in zip("abc", (4.0, 4.0, 90.0), strict=True):
            scored.fleet.apply(f"n-{cell}", path(rtt_ms), scored.now)
        found = scored.run(0.5)
    return found


def test_a_far_cell_of_a_quick_pool_is_hardly_within_reach() -> None:
    found = quick().reach
    assert found is not None
    assert found.factor[0].tolist() == [1.0, 1.0, pytest.approx(LEAST)]
    assert found.excess_ms[0, 2] == pytest.approx(86.0 + 1.5 * 8.6, rel=0.01)


def test_without_the_network_signals_and_where_answers_take_long_all_are_within_reach() -> None:
    assert quick("v2").reach is None
    assert quick(ttft_s=0.4).reach is None


def test_an_old_report_of_a_dead_path_is_absent() -> None:
    scored = Scored("a")
    scored.fleet.apply("n-a", path(None, loss=1.0), 0.0)
    scored.run(6.0)
    assert scored.run(0.0).explain(0, 0)[INDEX["rtt_ms"]].normalised is None


def test_an_old_path_is_absent() -> None:
    scored = Scored("a")
    scored.fleet.apply("n-a", telemetry(paths=[pb.PathBeat(gateway="g", rtt_ms=140.0)]), 0.0)
    before = float(scored.run(0.0).raw[0, 0])
    assert float(scored.run(6.0).raw[0, 0]) < before


def test_error_evidence_outlives_telemetry_and_makes_no_quorum() -> None:
    """A failing cell whose agent falls silent must not be forgiven for it."""
    scored = Scored("a", "b", "c", hold_s=1.0, decay_s=1.0)
    rows = [scored.fleet.row(cell) for cell in ("a", "b", "c")]
    scored.fleet.totals[:3] = 0.0
    scored.fleet.evidence[rows, 0] = 100.0
    scored.fleet.evidence[rows[0], 1] = 100.0
    assert scored.pressure("a", 1.0) == pytest.approx(1.0)
    scored.signals["a"] = None
    found = scored.run(60.0)
    assert found.pressure[0, rows[0]] == pytest.approx(1.0)
    assert not found.quorum[0, rows[0]]


def test_a_cell_without_error_evidence_stands_like_one_with_a_clean_record() -> None:
    """A restarted controller learns its cells' records one by one; that moves no traffic."""
    scored = Scored("a", "b", "c")
    scored.fleet.totals[:3] = 0.0
    scored.fleet.evidence[1:3, 0] = 100.0
    found = scored.run(1.0)
    assert math.isnan(found.error_estimate[0])
    assert found.error_estimate[1] == 0.0
    np.testing.assert_allclose(found.pressure[0], found.pressure[0, 0])


def test_nothing_moves_in_a_fleet_that_stands_still() -> None:
    scored = Scored("a", "b")
    first = scored.run(5.0).pressure.copy()
    np.testing.assert_allclose(scored.run(5.0).pressure, first, atol=1e-12)


def test_one_cells_nan_touches_no_other_cell() -> None:
    plain, odd = Scored("a", "b", "c"), Scored("a", "b", "c")
    odd.signals["b"] = {**ENOUGH, "kv_fill": math.nan}
    before, after = plain.run(2.0).pressure[0], odd.run(2.0).pressure[0]
    np.testing.assert_array_equal(before[[0, 2]], after[[0, 2]])
    assert np.isfinite(after).all()


def test_an_explanation_adds_up_to_the_score() -> None:
    scored = Scored("a", gateways=("g", "h"))
    scored.fleet.apply("n-a", telemetry(paths=[pb.PathBeat(gateway="h", rtt_ms=75.0, age_ms=200)]), 0.0)
    found = scored.run(0.0)
    shares = found.explain(1, 0)
    assert [share.name for share in shares] == list(NAMES)
    assert sum(share.weight for share in shares) == pytest.approx(1.0)
    assert sum(share.contribution for share in shares) == pytest.approx(found.base[1, 0])
    rtt = shares[INDEX["rtt_ms"]]
    assert (rtt.raw, rtt.normalised, rtt.age_s) == (75.0, 0.5, pytest.approx(0.2))
    assert shares[INDEX["ttft_p95_s"]].raw is None
    assert shares[INDEX["ttft_p95_s"]].weight == 0.0
    assert found.explain(0, 0)[INDEX["rtt_ms"]].raw is None


def test_what_is_filled_is_shown_as_absent_and_adds_up_all_the_same() -> None:
    scored = Scored("a", "b", "c")
    scored.signals["b"] = {"queue_depth": 4.0, "kv_fill": 0.25, "ttft_p95_s": 1.0}
    found = scored.run(0.0)
    row = scored.fleet.row("b")
    shares = {share.name: share for share in found.explain(0, row)}
    gone = shares["compute_active"]
    assert (gone.raw, gone.normalised, gone.filled) == (None, None, ENOUGH["compute_active"])
    assert gone.weight > 0
    assert gone.contribution == pytest.approx(gone.weight * ENOUGH["compute_active"])
    assert shares["queue_depth"].filled is None
    assert shares["gpu_util"].filled is None
    assert sum(share.contribution for share in shares.values()) == pytest.approx(found.base[0, row])
    assert not scored.run(0.0).quorum[0, row] or len([s for s in shares.values() if s.raw is not None]) >= 3


def test_what_is_filled_makes_no_quorum() -> None:
    scored = Scored("a", "b", quorum=3)
    scored.signals["b"] = {"queue_depth": 4.0, "kv_fill": 0.25}
    assert scored.run(0.1).quorum[0].tolist() == [True, False]


def test_a_gap_is_filled_from_the_cells_own_pools() -> None:
    scored = Scored("a", "b", "c", "d")
    for cell, models in (("c", ("x",)), ("d", ("m", "x"))):
        scored.fleet.register(f"n-{cell}", "s", hello(facts(cell, models)), 0.0)
    scored.signals = {
        "a": ENOUGH | {"kv_fill": 0.2},
        "b": ENOUGH | {"kv_fill": 0.4},
        "c": ENOUGH | {"kv_fill": 0.9},
        "d": {name: value for name, value in ENOUGH.items() if name != "kv_fill"},
    }
    filled = scored.run(0.0).explain(0, scored.fleet.row("d"))[INDEX["kv_fill"]].filled
    assert filled == pytest.approx((0.3 + 0.9) / 2)


def test_cells_that_do_not_serve_fill_no_gap() -> None:
    scored = Scored("a", "b", "c")
    scored.fleet.state[scored.fleet.row("c")] = CellState.FAILED
    scored.signals["c"] = FULL
    scored.signals["b"] = {"queue_depth": 4.0, "kv_fill": 0.25, "ttft_p95_s": 0.0}
    found = scored.run(0.0).explain(0, scored.fleet.row("b"))[INDEX["compute_active"]].filled
    assert found == ENOUGH["compute_active"]


def test_a_record_brings_a_cells_standing_to_the_next_model() -> None:
    """Score and error evidence, also before any new figure has come."""
    scored = Scored("a", "b", "c")
    scored.fleet.totals[:3] = 0.0
    scored.fleet.evidence[:3, 0] = 100.0
    scored.fleet.evidence[0, 1] = 100.0
    scored.signals["a"] = {**ENOUGH, "kv_fill": 0.9}
    before = scored.run(5.0)
    after = Scored("a", "b", "c")
    for row in range(3):
        after.model.restore(after.fleet, row, scored.model.record(scored.fleet, row), 0.0)
    after.signals = dict.fromkeys("abc", None)
    found = after.run(1.0)
    np.testing.assert_allclose(found.pressure, before.pressure)
    np.testing.assert_allclose(found.error_estimate, before.error_estimate)


def test_a_clock_that_steps_back_moves_nothing() -> None:
    scored = Scored("a")
    before = scored.run(1.0).pressure.copy()
    scored.model.tick(scored.fleet, scored.now - 100.0)
    np.testing.assert_allclose(scored.model.tick(scored.fleet, scored.now).pressure, before, atol=1e-9)


def test_an_empty_fleet_has_no_pressure() -> None:
    assert PressureModel(PressureSettings(), 2).tick(Fleet(["g", "h"]), 1.0).pressure.shape == (2, 0)
