"""Gauges that freeze, and gauges that are not alive yet."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.kinds import ENGINES
from headrace_agent.collectors.app.pages.metrics import MetricsSource
from headrace_agent.collectors.app.pages.motion import COLD_S
from headrace_agent.collectors.readings import Status
from headrace_agent.settings import EngineSettings
from tests.unit.agent.collectors.app.engine_pages import capture, vllm_page

SETTINGS = EngineSettings(scrape_interval_s=0.5, ttft_window_s=30)
BUSY = vllm_page(running=3, waiting=2, kv=0.5, tokens=700)


class Feed:
    """A source that reads a page every half second."""

    def __init__(self, settings: EngineSettings = SETTINGS) -> None:
        self.source = MetricsSource(settings)
        self.now = 0.0

    def __call__(self, *pages: bytes, step: float = 0.5) -> MetricsSource:
        for page in pages:
            self.source.take(Answer(200, page), self.now)
            self.now += step
        return self.source

    @property
    def last(self) -> float:
        """When the last page was read."""
        return self.now - 0.5


class TestFrozen:
    def test_requests_run_and_nothing_moves(self) -> None:
        """The gauges are not believed any more; what is counted elsewhere is."""
        feed = Feed()
        source = feed(BUSY, *[BUSY] * 9)
        assert source.frozen_since is None
        assert source.signals(feed.last)["queue_depth"] == 2.0
        feed(BUSY)
        assert source.frozen_since == 0.0
        assert source.signals(feed.last) == {}
        assert source.in_flight(feed.last) is None
        reading = source.reading(feed.last)
        assert reading.status is Status.STALE
        assert "nothing on it has moved for 5 s" in reading.detail
        assert reading.read_at == feed.last

    def test_what_is_counted_in_front_of_the_loop_is_given_on(self) -> None:
        feed = Feed()
        errors = [vllm_page(running=3, tokens=7, responses={"2xx": 1, "4xx": n}) for n in range(12)]
        source = feed(*errors)
        assert source.frozen_since == 0.0
        assert source.signals(feed.last).keys() == {"error_rate"}
        assert source.totals is not None
        assert source.totals.client_errors == 11

    @pytest.mark.parametrize(
        "moved",
        [
            vllm_page(running=3, waiting=2, kv=0.5, tokens=701),
            vllm_page(running=4, waiting=2, kv=0.5, tokens=700),
            vllm_page(running=3, waiting=2, kv=0.51, tokens=700),
            vllm_page(running=0, waiting=0, kv=0.0, tokens=700),
        ],
        ids=["tokens", "running", "cache", "idle"],
    )
    def test_it_ends_when_anything_moves(self, moved: bytes) -> None:
        """A long prompt gives no token for seconds, but it fills the cache."""
        feed = Feed()
        source = feed(*[BUSY] * 20)
        assert source.frozen_since is not None
        feed(moved)
        assert source.frozen_since is None
        assert "queue_depth" in source.signals(feed.last)
        assert source.reading(feed.last).status is Status.OK

    def test_waiting_alone_is_enough(self) -> None:
        source = Feed()(*[vllm_page(waiting=1, tokens=3)] * 20)
        assert source.frozen_since is not None

    def test_an_idle_engine_is_not_frozen(self) -> None:
        feed = Feed()
        source = feed(*[vllm_page(kv=0.2, tokens=700)] * 100)
        assert source.frozen_since is None
        assert source.signals(feed.last)["queue_depth"] == 0.0

    def test_a_sleeping_engine_is_not_frozen(self) -> None:
        source = Feed()(*[vllm_page(running=1, tokens=7, awake=0)] * 20)
        assert source.frozen_since is None

    def test_a_page_without_counters_of_work_tells_nothing(self) -> None:
        assert Feed()(*[vllm_page(running=1)] * 20).frozen_since is None

    def test_few_pages_are_no_proof(self) -> None:
        """Read once a minute, two pages of a steady load may well be equal."""
        feed = Feed(EngineSettings(scrape_interval_s=60))
        source = feed(BUSY, BUSY, BUSY, step=60)
        assert source.frozen_since is None
        feed(BUSY, step=60)
        assert source.frozen_since == 0.0

    @pytest.mark.parametrize(
        ("name", "after_s"),
        [
            ("vllm_0.32.0_busy.prom", 5.0),
            ("sglang_0.5_busy.prom", 10.0),
            ("trtllm_1.2_busy.prom", 10.0),
            ("triton_24.12_busy.prom", 10.0),
            ("tgi_3.0_busy.prom", 5.0),
            ("llamacpp_b7000_busy.prom", 20.0),
        ],
    )
    def test_each_kind_after_its_time(self, name: str, after_s: float) -> None:
        feed = Feed()
        page = capture(name)
        source = feed(*[page] * round(2 * after_s))
        assert source.frozen_since is None
        feed(page)
        assert source.frozen_since == 0.0
        assert "queue_depth" not in source.signals(feed.last)

    @pytest.mark.parametrize("kind", ENGINES)
    def test_each_kind_names_what_moves(self, kind: str) -> None:
        assert ENGINES[kind].progress


class TestCold:
    """Queue gauges can say 0 for many seconds after a start, though requests run."""

    def start(self, feed: Feed, tokens: int, seconds: float) -> MetricsSource:
        return feed(*[vllm_page(tokens=tokens + step) for step in range(round(2 * seconds))])

    def test_a_silent_queue_of_a_new_engine_that_works_is_not_believed(self) -> None:
        feed = Feed()
        source = self.start(feed, 0, 3)
        assert source.signals(feed.last).keys() == {"kv_fill"}
        assert source.in_flight(feed.last) is None
        assert "not believed yet" in source.reading(feed.last).detail
        assert source.reading(feed.last).status is Status.OK

    def test_it_is_believed_from_its_first_figure_on(self) -> None:
        feed = Feed()
        source = self.start(feed, 0, 3)
        feed(vllm_page(tokens=10, waiting=1))
        assert source.signals(feed.last)["queue_depth"] == 1.0
        feed(vllm_page(tokens=11))
        assert source.signals(feed.last)["queue_depth"] == 0.0

    def test_it_is_believed_after_a_while(self) -> None:
        """So short may requests be that none is ever seen in the queue."""
        feed = Feed()
        source = self.start(feed, 0, COLD_S + 1)
        assert source.signals(feed.last)["queue_depth"] == 0.0
        assert source.reading(feed.last).detail == ""

    def test_it_is_believed_while_there_is_no_work(self) -> None:
        feed = Feed()
        assert feed(*[vllm_page(tokens=0)] * 4).signals(feed.last)["queue_depth"] == 0.0

    def test_it_is_believed_of_an_engine_that_has_run_before(self) -> None:
        feed = Feed()
        assert self.start(feed, 5000, 3).signals(feed.last)["queue_depth"] == 0.0

    def test_a_restart_is_a_start(self) -> None:
        feed = Feed()
        source = self.start(feed, 5000, 3)
        feed(*[vllm_page(tokens=step, started_at=1.8e9) for step in range(3)])
        assert "queue_depth" not in source.signals(feed.last)
