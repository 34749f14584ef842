"""Round trip, jitter and loss; above all, what is unknown is never a good figure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.network.estimate import DEAD_AFTER, WINDOW, Estimate, PathEstimator, credible


def fed(*rtts: float | None, interval_s: float = 0.5) -> PathEstimator:
    path = PathEstimator()
    for step, rtt in enumerate(rtts):
        if rtt is None:
            path.lost()
        else:
            path.reply(rtt, 1000.0 + step * interval_s)
    return path


def test_before_the_first_echo_nothing_is_known() -> None:
    assert fed().estimate() == Estimate(None, None, None)


def test_one_reply_has_a_round_trip_and_no_jitter_yet() -> None:
    assert fed(30.0).estimate() == Estimate(30.0, None, 0.0)


def test_a_path_that_never_answers_has_no_round_trip_and_loses_all() -> None:
    for count in (1, DEAD_AFTER, WINDOW, WINDOW * 2):
        assert fed(*[None] * count).estimate() == Estimate(None, None, 1.0)


def test_a_path_that_dies_forgets_its_good_days() -> None:
    path = fed(*[20.0] * 30, *[None] * DEAD_AFTER)
    assert path.dead
    assert path.estimate() == Estimate(None, None, 1.0)


def test_a_few_losses_are_loss_and_no_death() -> None:
    path = fed(*[20.0] * 17, *[None] * (DEAD_AFTER - 1))
    assert not path.dead
    figures = path.estimate()
    assert (figures.rtt_ms, figures.jitter_ms) == pytest.approx((20.0, 0.0))
    assert figures.loss == 0.15


def test_a_path_that_comes_back_starts_anew() -> None:
    figures = fed(*[20.0] * 30, *[None] * DEAD_AFTER, 50.0).estimate()
    assert figures == Estimate(50.0, None, DEAD_AFTER / (DEAD_AFTER + 1))


def test_jitter_is_the_mean_difference_of_consecutive_replies() -> None:
    assert fed(10.0, 14.0, None, 13.0).estimate().jitter_ms == pytest.approx((4.0 + 1.0) / 2)


def test_jitter_and_loss_forget_what_left_the_window() -> None:
    figures = fed(None, 500.0, *[20.0] * WINDOW).estimate()
    assert figures.jitter_ms == 0.0
    assert figures.loss == 0.0


@pytest.mark.parametrize("interval_s", [0.1, 0.5, 1.0])
def test_the_round_trip_follows_a_step_within_seconds_at_any_cadence(interval_s: float) -> None:
    after_2s = fed(*[20.0] * 30, *[120.0] * round(2 / interval_s), interval_s=interval_s).estimate().rtt_ms
    after_10s = fed(*[20.0] * 30, *[120.0] * round(10 / interval_s), interval_s=interval_s).estimate().rtt_ms
    assert after_2s == pytest.approx(20 + 100 * 0.632, abs=1)
    assert after_10s == pytest.approx(120.0, abs=1)


@pytest.mark.parametrize(
    ("rtt_s", "elapsed_s", "believed"),
    [
        (0.030, 0.0301, True),
        (0.030, 0.040, True),
        (0.0301, 0.030, True),
        (3600.0, 0.030, False),
        (0.080, 0.030, False),
        (-1.0, 0.030, False),
        (0.0, 0.900, False),
    ],
)
def test_a_stepped_wall_clock_is_not_believed(rtt_s: float, elapsed_s: float, believed: bool) -> None:
    assert credible(rtt_s, elapsed_s) is believed


@given(st.lists(st.one_of(st.none(), st.floats(0.01, 2000.0)), max_size=80))
def test_figures_stay_within_what_was_measured(rtts: list[float | None]) -> None:
    figures = fed(*rtts).estimate()
    seen = [rtt for rtt in rtts if rtt is not None]
    assert figures.loss is None or 0.0 <= figures.loss <= 1.0
    assert figures.jitter_ms is None or figures.jitter_ms >= 0.0
    if figures.rtt_ms is not None:
        assert min(seen) - 1e-9 <= figures.rtt_ms <= max(seen) + 1e-9
    else:
        assert figures.jitter_ms is None
        assert figures.loss in (None, 1.0)
