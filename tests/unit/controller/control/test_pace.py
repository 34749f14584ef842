"""When a publication is due: what cannot wait at once, who joins after a rest, the rest at intervals."""

from __future__ import annotations

from headrace_controller.control.pace import (
    LONGEST_REST_S,
    PICKED_REST_S,
    QUIET_INTERVAL_S,
    REST_FACTOR,
    SCORE_INTERVAL_S,
    SCORE_SHARE,
    Pace,
)

TICK_S = 0.05


def published(took_s: float) -> Pace:
    """A pace whose last publication began at 0 and took so long."""
    pace = Pace(TICK_S)
    pace.note_figures()
    assert pace.is_due(0.0)
    pace.begin(0.0)
    pace.end(took_s, took_s)
    return pace


def test_new_figures_are_scored_soon_and_time_alone_later() -> None:
    pace = published(0.0)
    assert not pace.is_due(SCORE_INTERVAL_S)
    assert pace.is_due(QUIET_INTERVAL_S)
    pace.note_figures()
    assert not pace.is_due(SCORE_INTERVAL_S - TICK_S)
    assert pace.is_due(SCORE_INTERVAL_S)


def test_who_joins_waits_for_a_rest_as_long_as_several_publications() -> None:
    pace = published(0.04)
    pace.note_change("joined", urgent=False)
    rested = 0.04 + 0.04 * REST_FACTOR
    assert not pace.is_due(rested - 0.001)
    assert pace.is_due(rested + 0.001)
    assert pace.begin(rested + 0.001) == "joined"
    assert not pace.waits


def test_figures_wait_for_the_rest_too_or_they_would_bring_the_joiners() -> None:
    pace = published(0.04)
    pace.note_figures()
    pace.note_change("joined", urgent=False)
    assert not pace.is_due(0.04 + SCORE_INTERVAL_S)


def test_what_goes_out_of_service_waits_for_nothing_and_takes_the_joiners_with_it() -> None:
    pace = published(0.5)
    pace.note_change("joined", urgent=False)
    assert pace.rests(0.5)
    pace.note_change("failed", urgent=True)
    assert not pace.rests(0.5)
    assert pace.is_due(0.5)
    assert pace.begin(0.5)
    pace.end(0.5, 0.5)
    assert not pace.is_due(0.6), "what is told is not told again"


def test_what_operators_ask_for_waits_for_nothing() -> None:
    pace = published(0.5)
    pace.demand()
    assert pace.is_due(0.5)


def test_no_rest_is_longer_than_its_bound() -> None:
    pace = published(10.0)
    pace.note_change("", urgent=False)
    assert not pace.is_due(10.0 + LONGEST_REST_S - 0.001)
    assert pace.is_due(10.0 + LONGEST_REST_S)
    assert pace.begin(10.0 + LONGEST_REST_S) == "membership"


def test_a_picker_gets_its_picture_sooner() -> None:
    pace = Pace(TICK_S, PICKED_REST_S)
    pace.begin(0.0)
    pace.end(10.0, 10.0)
    assert not pace.is_due(10.0 + PICKED_REST_S - 0.001)
    assert pace.is_due(10.0 + PICKED_REST_S)


def test_scoring_a_large_fleet_takes_a_small_share_of_the_time() -> None:
    took_s = SCORE_SHARE * (SCORE_INTERVAL_S + QUIET_INTERVAL_S) / 2
    pace = published(took_s)
    pace.note_figures()
    assert not pace.is_due(took_s / SCORE_SHARE - TICK_S)
    assert pace.is_due(took_s / SCORE_SHARE)
    pace.note_change("failed", urgent=True)
    assert pace.is_due(took_s)


def test_scoring_never_waits_longer_than_time_alone_would() -> None:
    pace = published(10.0)
    pace.note_figures()
    assert pace.is_due(10.0 + LONGEST_REST_S + QUIET_INTERVAL_S)
