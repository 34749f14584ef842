"""Bad pages over HTTP: a clear word about the source, and nothing else disturbed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors import containment
from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.pages import figures
from headrace_agent.collectors.app.pages.figures import Figures
from headrace_agent.collectors.app.pages.mapping import Engine
from headrace_agent.collectors.app.pages.page import Page
from headrace_agent.collectors.readings import EngineState, Status, Totals
from tests.integration.agent_app.collecting import collecting, fast
from tests.integration.agent_app.fake_engine import fake_engine
from tests.unit.agent.collectors.app.engine_pages import VLLM_0_32_0, capture, vllm_page

WHOLE = capture(VLLM_0_32_0)

BAD_PAGES = {
    "empty": (b"", Status.NO_DATA, "the page is empty"),
    "html": (b"<!doctype html><html><body>Sign in</body></html>", Status.FAILED, "HTML"),
    "10 MB": (b"# padding\n" * 1_000_000, Status.FAILED, "larger than 4 MiB"),
    "not utf-8": (WHOLE + b"\xff\xfe\n", Status.FAILED, "not UTF-8"),
    "cut short": (WHOLE[:-20], Status.OK, "cut short"),
    "foreign": (b"node_load1 0.5\n", Status.NO_DATA, "no family of an engine"),
}


@pytest.mark.parametrize(("page", "status", "words"), BAD_PAGES.values(), ids=BAD_PAGES.keys())
async def test_bad_page_degrades_the_source_alone(page: bytes, status: Status, words: str) -> None:
    async with fake_engine() as engine:
        engine.page = WHOLE
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            with capture_logs() as logs:
                engine.page = page
                await seen.until(lambda: words in seen.reading.source.detail)
                tries = engine.asked["/metrics"]
                await seen.until(lambda: engine.asked["/metrics"] >= tries + 3)
                assert seen.reading.source.status is status
                said = [entry for entry in logs if entry["event"] == "metrics page: trouble"]
                assert len(said) == 1, "once per change, not per try"
                assert words in said[0]["cause"]
                assert seen.collector.tallies()["engine"].failures >= 3, "each try is counted"
                engine.page = WHOLE
                await seen.until(lambda: seen.reading.source.detail == "")
                await seen.until(lambda: logs[-1]["event"] == "metrics page: well again")
            assert seen.kinds == ["serving"]
            assert "kv_fill" in seen.reading.signals


async def test_failing_page_touches_no_state() -> None:
    async with fake_engine() as engine:
        engine.page_status = 500
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            await seen.until(lambda: "answered 500" in seen.reading.source.detail)
            assert seen.reading.source.status is Status.FAILED
            assert seen.reading.source.read_at is None
            assert seen.reading.signals == {}


async def test_hanging_page_touches_no_state_and_its_figures_age_out() -> None:
    async with fake_engine() as engine:
        engine.page = vllm_page(waiting=2, responses={"2xx": 5})
        async with collecting(engine.url, fast(scrape_timeout_s=1)) as seen:
            await seen.until_state(EngineState.SERVING)
            assert "queue_depth" in seen.reading.signals
            engine.hanging = {"/metrics"}
            await seen.until(lambda: seen.reading.source.status is Status.STALE)
            assert seen.reading.signals == {}
            await seen.until(lambda: seen.reading.source.status is Status.FAILED)
            assert "not answered within" in seen.reading.source.detail
            assert seen.kinds == ["serving"]


async def test_figures_flow() -> None:
    async with fake_engine() as engine:
        engine.page = vllm_page(responses={"2xx": 5})
        async with collecting(engine.url) as seen:
            await seen.until(lambda: seen.reading.totals == Totals(ok=0, client_errors=0, server_errors=0))
            engine.page = vllm_page(waiting=2, running=3, kv=0.25, responses={"2xx": 8, "4xx": 1})
            await seen.until(lambda: seen.reading.signals.get("error_rate"))
            assert seen.reading.signals == {"queue_depth": 2.0, "kv_fill": 0.25, "error_rate": 0.25}
            assert seen.reading.in_flight == 5
            assert seen.reading.totals == Totals(ok=3, client_errors=1, server_errors=0)


async def test_endless_page_is_not_read_to_its_end() -> None:
    """A body without a length is cut off at the limit, not collected in memory."""
    async with fake_engine() as engine, fake_engine() as other:
        engine.endless = True
        async with collecting(engine.url) as seen, collecting(other.url) as neighbour:
            await seen.until(lambda: "larger than 4 MiB" in seen.reading.source.detail)
            assert engine.sent / engine.asked["/metrics"] < 16 * 1024 * 1024
            await neighbour.until_state(EngineState.SERVING)
            assert neighbour.reading.source.status is Status.OK


async def test_an_engine_slow_to_show_its_page_is_left_alone_in_between() -> None:
    """Back to back, it would show pages and do little else."""
    async with fake_engine() as engine:
        engine.page, engine.page_s = WHOLE, 0.3
        async with collecting(engine.url, fast(scrape_interval_s=0.1)) as seen:
            await seen.until_state(EngineState.SERVING)
            shown = len(engine.pages_at)
            await seen.until(lambda: len(engine.pages_at) >= shown + 4)
            gaps = [b - a for a, b in pairwise(engine.pages_at[shown:])]
            assert min(gaps) > 0.55, "as long as it took, between the end of one and the start of the next"
            assert seen.reading.source.status is Status.OK, "its figures last as long as its pace needs"


async def test_a_page_that_breaks_its_reader_is_trouble_of_its_source_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What nobody foresaw: said once with its traceback, counted, and no state touched."""
    whole = figures.read

    def break_down(engine: Engine, page: Page) -> Figures:
        raise OverflowError("cannot convert float infinity to integer")

    async with fake_engine() as engine:
        engine.page = vllm_page(responses={"2xx": 5})
        async with collecting(engine.url) as seen:
            await seen.until_state(EngineState.SERVING)
            with capture_logs() as logs:
                monkeypatch.setattr(figures, "read", break_down)
                engine.page = vllm_page(responses={"2xx": 6})
                await seen.until(lambda: "OverflowError" in seen.reading.source.detail)
                tries = engine.asked["/metrics"]
                await seen.until(lambda: engine.asked["/metrics"] >= tries + 3)
                assert seen.reading.source.status is Status.FAILED
                monkeypatch.setattr(figures, "read", whole)
                await seen.until(lambda: seen.reading.source.status is Status.OK)
            said = [line for line in logs if line["event"] == "unexpected error, contained"]
            assert len(said) == 1
            assert seen.kinds == ["serving"]


async def test_a_job_that_breaks_is_started_again_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(containment, "FIRST_PAUSE_S", 0.05)
    whole, broke = EngineHealth.health, 0

    def break_twice(self: EngineHealth, status: int, now: float, call: str) -> Change | None:
        nonlocal broke
        broke += 1
        if broke <= 2:
            raise RuntimeError("broken")
        return whole(self, status, now, call)

    monkeypatch.setattr(EngineHealth, "health", break_twice)
    async with fake_engine() as engine:
        with capture_logs() as logs:
            async with collecting(engine.url) as seen:
                await seen.until_state(EngineState.SERVING)
        said = [line["part"] for line in logs if line["event"] == "unexpected error, contained"]
        assert said == ["engine cell-1: probe"]


async def test_what_was_asked_is_counted_by_what_it_was() -> None:
    async with fake_engine() as engine:
        engine.completion = 503
        async with collecting(engine.url) as seen:
            await seen.until(lambda: seen.collector.tallies()["warm_up"].failures >= 1)
            engine.completion = 200
            await seen.until_state(EngineState.SERVING)
            tallies = seen.collector.tallies()
    assert tallies.keys() == {"engine", "models", "warm_up"}
    assert tallies["engine"].failures == 0 < tallies["engine"].tries
    assert tallies["warm_up"].tries > tallies["warm_up"].failures
