"""Bad pages over HTTP: a clear word about the source, and nothing else disturbed."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

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
    "foreign": (b"node_load1 0.5\n", Status.NO_DATA, "no vllm: family"),
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
                assert logs[-1]["event"] == "metrics page: well again"
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
