"""Counters of engines that restart, lose series and gain them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.pages.counters import MAX_SERIES, Increments, RequestCounter, SlidingWindow
from headrace_agent.collectors.app.pages.figures import Figures
from headrace_agent.collectors.exposition import SeriesKey
from headrace_agent.collectors.readings import Totals

DONE: SeriesKey = (("handler", "/v1/completions"),)


def responses(started_at: float | None = 1.0, exact: bool = False, **counts: float) -> Figures:
    by_class = {(kind, DONE): value for kind, value in counts.items()}
    tells = frozenset({"ok", "client_errors", "server_errors", *(["throttled"] if exact else [])})
    return Figures(kind="vllm", responses=by_class, tells=tells, started_at=started_at)


class TestIncrements:
    def test_first_page_is_the_base(self) -> None:
        increments: Increments[str] = Increments()
        assert increments.update({"a": (5.0,)}, None) == {"a": (0.0,)}
        assert increments.update({"a": (7.0,)}, None) == {"a": (2.0,)}

    def test_reset_adds_what_is_new(self) -> None:
        increments: Increments[str] = Increments()
        increments.update({"a": (5.0,)}, None)
        assert increments.update({"a": (2.0,)}, None) == {"a": (2.0,)}

    def test_new_start_is_a_reset_even_where_counts_rose(self) -> None:
        increments: Increments[str] = Increments()
        increments.update({"a": (5.0,)}, 100.0)
        assert increments.update({"a": (9.0,)}, 200.0) == {"a": (9.0,)}

    def test_appearing_series_began_at_zero(self) -> None:
        increments: Increments[str] = Increments()
        increments.update({}, None)
        assert increments.update({"a": (3.0,)}, None) == {"a": (3.0,)}

    def test_returning_series_is_no_jump(self) -> None:
        increments: Increments[str] = Increments()
        increments.update({"a": (5.0,)}, None)
        increments.update({}, None)
        assert increments.update({"a": (6.0,)}, None) == {"a": (1.0,)}

    def test_vector_resets_as_one(self) -> None:
        increments: Increments[str] = Increments()
        increments.update({"a": (5.0, 9.0)}, None)
        assert increments.update({"a": (1.0, 10.0)}, None) == {"a": (1.0, 10.0)}

    def test_memory_is_bounded(self) -> None:
        increments: Increments[int] = Increments()
        for start in range(0, 3 * MAX_SERIES, MAX_SERIES // 2):
            increments.update(dict.fromkeys(range(start, start + MAX_SERIES // 2), (1.0,)), None)
        assert len(increments._last) <= MAX_SERIES

    @given(
        st.lists(
            st.tuples(
                st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 50).map(float))),
                st.sampled_from([None, 1.0, 2.0]),
            ),
            max_size=12,
        )
    )
    def test_never_negative(self, pages: list[tuple[dict[str, tuple[float]], float | None]]) -> None:
        increments: Increments[str] = Increments()
        for series, epoch in pages:
            added = increments.update(series, epoch)
            assert added.keys() == series.keys()
            assert all(0 <= value <= series[key][0] for key, (value,) in added.items())


class TestSlidingWindow:
    def test_counts_only_what_is_inside(self) -> None:
        window = SlidingWindow(10.0)
        for second in range(31):
            window.push((float(second),), now=float(second))
        assert window.delta() == (10.0,)

    def test_short_intervals_keep_few_marks_and_the_latest_value(self) -> None:
        window = SlidingWindow(10.0)
        for step in range(5001):
            window.push((float(step),), now=step / 100)
        assert len(window._marks) <= 102
        assert window.delta()[0] == pytest.approx(1000, abs=15)

    def test_restart(self) -> None:
        window = SlidingWindow(10.0)
        window.push((1.0,), 0.0)
        window.push((5.0,), 1.0)
        window.restart()
        assert window.delta() == ()
        window.push((6.0,), 2.0)
        assert window.delta() == (0.0,)


class TestRequestCounter:
    def test_counts_since_the_first_page(self) -> None:
        counter = RequestCounter(30.0)
        counter.update(responses(ok=100, client_errors=5), 0.0)
        assert counter.totals == Totals(ok=0, client_errors=0, server_errors=0)
        assert counter.error_rate is None
        counter.update(responses(ok=106, client_errors=7, server_errors=2), 0.5)
        assert counter.totals == Totals(ok=6, client_errors=2, server_errors=2)
        assert counter.error_rate == pytest.approx(4 / 10)

    def test_throttled_apart_only_where_codes_are_exact(self) -> None:
        counter = RequestCounter(30.0)
        counter.update(responses(exact=True, ok=1), 0.0)
        counter.update(responses(exact=True, ok=1, throttled=3), 0.5)
        assert counter.totals == Totals(ok=0, client_errors=0, throttled=3, server_errors=0)
        assert counter.error_rate == 1.0

    def test_cancelled_is_no_error(self) -> None:
        counter = RequestCounter(30.0)
        counter.update(responses(), 0.0)
        counter.update(responses(ok=1, cancelled=9), 0.5)
        assert counter.error_rate == 0.0

    def test_cancelled_is_one_of_all(self) -> None:
        counter = RequestCounter(30.0)
        counter.update(responses(), 0.0)
        counter.update(responses(ok=5, client_errors=1, cancelled=4), 0.5)
        assert counter.error_rate == 0.1

    def test_from_the_start_the_first_page_counts(self) -> None:
        counter = RequestCounter(30.0, from_start=True)
        counter.update(responses(ok=90, client_errors=10), 0.0)
        assert counter.totals == Totals(ok=90, client_errors=10, server_errors=0)
        assert counter.error_rate == 0.1

    def test_resets_are_counted(self) -> None:
        counter = RequestCounter(30.0)
        for ok, started_at in ((5, 1.0), (6, 1.0), (2, 1.0), (3, 2.0)):
            counter.update(responses(started_at, ok=ok), 0.0)
        assert counter.resets == 2

    def test_rate_is_absent_again_when_the_window_holds_no_request(self) -> None:
        counter = RequestCounter(10.0)
        for second in range(30):
            counter.update(responses(ok=0, client_errors=min(second, 5)), float(second))
        assert counter.error_rate is None

    def test_engine_restart_adds(self) -> None:
        counter = RequestCounter(30.0)
        counter.update(responses(1.0, ok=100), 0.0)
        counter.update(responses(1.0, ok=110), 0.5)
        counter.update(responses(2.0, ok=4, client_errors=1), 1.0)
        assert counter.totals == Totals(ok=14, client_errors=1, server_errors=0)

    def test_0_6_6_counts_ok_only(self) -> None:
        """Where client errors are invisible, an error rate of the rest would be a lie."""
        counter = RequestCounter(30.0)
        for count, now in ((10, 0.0), (14, 0.5)):
            counter.update(Figures(kind="vllm", finished={("ok", DONE): count}), now)
        assert counter.totals == Totals(ok=4)
        assert counter.error_rate is None

    def test_no_counter_at_all(self) -> None:
        counter = RequestCounter(30.0)
        counter.update(Figures(kind="vllm"), 0.0)
        assert counter.totals is None

    def test_finished_requests_are_not_counted_twice(self) -> None:
        counter = RequestCounter(30.0)
        for count, now in ((1, 0.0), (3, 0.5)):
            both = replace(responses(ok=count), finished={("ok", DONE): count})
            counter.update(both, now)
        assert counter.totals == Totals(ok=2, client_errors=0, server_errors=0)

    @given(
        st.lists(
            st.builds(
                lambda kinds, started: responses(started, **kinds),
                st.dictionaries(st.sampled_from(["ok", "client_errors", "server_errors"]), st.integers(0, 9)),
                st.sampled_from([None, 1.0, 2.0]),
            ),
            max_size=12,
        )
    )
    def test_totals_never_fall(self, pages: list[Figures]) -> None:
        counter = RequestCounter(30.0)
        before = (0, 0, 0)
        for step, page in enumerate(pages):
            counter.update(page, step / 2)
            totals = counter.totals
            assert totals is not None
            after = (totals.ok or 0, totals.client_errors or 0, totals.server_errors or 0)
            assert all(new >= old for new, old in zip(after, before, strict=True))
            rate = counter.error_rate
            assert rate is None or 0 <= rate <= 1
            before = after
