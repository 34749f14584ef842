"""Streams whose answer does not begin: asked of another engine as well, and nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp

from headrace_controller.settings import EnvoySettings
from tests.e2e.xds.cells import Cell, CuttingCell, running_cells
from tests.e2e.xds.stack import Stack, running_stack, until

SETTINGS = EnvoySettings(health_checks=False, expose_upstream=True, hedge_after_s=0.3)
# Answers that begin at once begin within this on a busy machine, too.
SELDOM = SETTINGS.model_copy(update={"hedge_after_s": 2.0})
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class LateCell(Cell):
    """Takes requests and does not begin to answer before `answers` is set."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.answers = asyncio.Event()

    async def _complete(self, request: Any) -> Any:
        self.requests += 1
        await self.answers.wait()
        self.requests -= 1  # counted by the one who answers
        return await super()._complete(request)


def streaming(name: str) -> Cell:
    cell = Cell(name)
    cell.chunks = 2
    return cell


async def hedges(stack: Stack) -> int:
    return await stack.envoy.counter("cluster.pool/m.upstream_rq_retry")


async def test_a_stream_that_does_not_begin_is_answered_by_another_engine(tmp_path: Path) -> None:
    """The heavy one hangs; the body is too large for the default retry buffer."""
    a, hung = streaming("a"), LateCell("hung")
    pools = {"m": {a: 1, hung: 100}}
    async with running_cells(a, hung), running_stack(tmp_path, pools, SETTINGS) as stack:
        async with asyncio.timeout(20):
            for prompt in ("x" * 1_500_000, *["x"] * 8):
                answer = await stack.ask(stream=True, prompt=prompt)
                assert (answer.status, answer.upstream) == (200, a.address)
                assert answer.body.endswith("data: [DONE]\n\n")
        assert hung.requests > 0
        assert await hedges(stack) > 0
        hung.answers.set()
        await until(lambda: hung.gone > 0)


async def test_one_that_is_only_late_is_not_cut(tmp_path: Path) -> None:
    """No other engine is there to answer, and what was asked first is awaited."""
    late = LateCell("late")
    late.chunks = 2
    async with running_cells(late), running_stack(tmp_path, {"m": {late: 1}}, SETTINGS) as stack:
        asked = asyncio.create_task(stack.ask(stream=True))
        await until(lambda: late.requests > 0)
        await asyncio.sleep(3 * SETTINGS.hedge_after_s)
        late.answers.set()
        answer = await asked
        assert answer.status == 200
        assert answer.body.endswith("data: [DONE]\n\n")


async def test_an_answer_that_is_not_streamed_may_take_its_time(tmp_path: Path) -> None:
    slow, other = Cell("slow"), Cell("other")
    slow.delay_s = other.delay_s = 4 * SETTINGS.hedge_after_s
    pools = {"m": {slow: 1, other: 1}}
    async with running_cells(slow, other), running_stack(tmp_path, pools, SETTINGS) as stack:
        for more in ({}, {"stream": False}, {"stream": None}):
            assert (await stack.ask(**more)).status == 200
        assert slow.requests + other.requests == 3


async def test_a_slow_prefill_of_a_stream_that_has_begun_is_not_asked_twice(tmp_path: Path) -> None:
    """Headers at once, and a long time between the tokens."""
    a, b = streaming("a"), streaming("b")
    a.chunk_gap_s = b.chunk_gap_s = 1.25 * SELDOM.hedge_after_s
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1, b: 1}}, SELDOM) as stack:
        answer = await stack.ask(stream=True)
        assert answer.body == "data: 0\n\ndata: 1\n\ndata: [DONE]\n\n"
        assert a.requests + b.requests == 1
        assert await hedges(stack) == 0


async def test_a_stream_that_was_begun_and_breaks_is_not_asked_again(tmp_path: Path) -> None:
    begun = CuttingCell("begun", HEAD)
    a = streaming("a")
    pools = {"m": {a: 1, begun: 100}}
    async with running_cells(a, begun), running_stack(tmp_path, pools, SELDOM) as stack:
        broken = 0
        for _ in range(10):
            try:
                await stack.ask(stream=True)
            except aiohttp.ClientPayloadError:
                broken += 1
        assert broken == begun.requests > 0
        assert a.requests + begun.requests == 10


async def test_without_hedging_a_hung_engine_keeps_its_client(tmp_path: Path) -> None:
    a, hung = streaming("a"), LateCell("hung")
    settings = SETTINGS.model_copy(update={"hedge_after_s": 0.0})
    async with running_cells(a, hung), running_stack(tmp_path, {"m": {a: 1, hung: 100}}, settings) as stack:
        asked = [asyncio.create_task(stack.ask(stream=True)) for _ in range(10)]
        await until(lambda: hung.requests > 0)
        _, pending = await asyncio.wait(asked, timeout=4 * SETTINGS.hedge_after_s)
        assert pending
        hung.answers.set()
        assert {(await each).status for each in asked} == {200}


async def test_a_pool_that_is_late_as_a_whole_is_not_asked_everything_twice(tmp_path: Path) -> None:
    """Hedges are bounded by the requests under way."""
    cells = [LateCell(f"late-{i}") for i in range(3)]
    requests = 90
    pools = {"m": dict.fromkeys(cells, 1)}
    async with running_cells(*cells), running_stack(tmp_path, pools, SETTINGS) as stack:
        asked = [asyncio.create_task(stack.ask(stream=True)) for _ in range(requests)]
        await until(lambda: sum(cell.requests for cell in cells) >= requests)
        await until(lambda: sum(cell.requests for cell in cells) > requests)
        await asyncio.sleep(4 * SETTINGS.hedge_after_s)
        sent = sum(cell.requests for cell in cells)
        for cell in cells:
            cell.answers.set()
        assert {(await each).status for each in asked} == {200}
        assert requests < sent <= 1.5 * requests
        ejected = await stack.envoy.counter("cluster.pool/m.outlier_detection.ejections_enforced_total")
        assert ejected == 0  # to be late is no fault, and the others have enough to do


async def test_all_that_wait_at_an_engine_that_dies_are_asked_again(tmp_path: Path) -> None:
    """More at once than hedges and their retries may be. Answers that are not streamed have not begun."""
    other, dying = Cell("other"), LateCell("dying")
    requests = 80
    pools = {"m": {other: 1, dying: 3}}
    async with running_cells(other, dying), running_stack(tmp_path, pools, SETTINGS) as stack:
        asked = [asyncio.create_task(stack.ask()) for _ in range(requests)]
        await until(lambda: other.requests + dying.requests >= requests)
        assert dying.requests > requests / 2
        await dying.stop()
        assert {(await each).status for each in asked} == {200}
