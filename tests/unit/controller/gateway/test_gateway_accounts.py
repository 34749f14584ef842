"""Accounts: counts since the start, recent times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.gateway.accounts import FADE_S, Account, Times, report_of
from headrace_controller.gateway.records import Outcome, Record


def test_nothing_seen_is_absent_and_not_zero() -> None:
    report = report_of(Account(), 0.0)
    assert report.first_byte_p95_s is None
    assert report.counts["ok"] == 0


@given(st.lists(st.floats(0.002, 500.0), min_size=1, max_size=60), st.floats(0.05, 1.0))
def test_a_quantile_is_within_a_bucket_of_the_true_one(durations: list[float], share: float) -> None:
    times = Times()
    for each in durations:
        times.add(each, 1.0, 0.0)
    found, ranked = times.quantile(share, 0.0), sorted(durations)
    assert found is not None
    true = ranked[max(0, -(-int(share * len(ranked) * 1e9) // 10**9) - 1)]
    above = ranked[min(len(ranked) - 1, int(share * len(ranked)))]
    assert true / 1.5 <= found <= above * 1.5


def test_old_times_fade() -> None:
    times = Times()
    for _ in range(1000):
        times.add(10.0, 1.0, 0.0)
    for _ in range(100):
        times.add(0.1, 1.0, 20 * FADE_S)
    found = times.quantile(0.9, 20 * FADE_S)
    assert found is not None
    assert found < 0.2
    assert times.quantile(0.9, 1e6) is None


def test_streams_and_failures_have_no_first_byte() -> None:
    account = Account()
    account.add(Record(Outcome.OK, first_byte_s=0.1, last_byte_s=0.4, streamed=True), 1.0, 0.0)
    account.add(Record(Outcome.CLIENT_ERROR, first_byte_s=0.1, last_byte_s=0.4), 1.0, 0.0)
    report = report_of(account, 0.0)
    assert report.first_byte_p50_s is None
    assert report.whole_p50_s == pytest.approx(0.4, rel=0.5)
    assert report.counts["client_errors"] == 1


def test_sampled_records_stand_for_those_left_out() -> None:
    account = Account()
    account.add(Record(Outcome.OK), 10, 0.0)
    assert report_of(account, 0.0).counts["ok"] == 10
