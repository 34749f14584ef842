"""Load through the region's Envoy in the background, and a watch over the weights that Envoy holds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

import aiohttp

from headrace_lab.load.arrivals import Arrival, Mix, schedule
from headrace_lab.load.driver import CELL_HEADER, Driver, Limits, Target
from headrace_lab.load.records import Record
from tests.e2e.whole_path.region import AWAY, PATIENCE_S, Region

MIX = Mix(short_tokens=(40, 120), long_tokens=(300, 600), long_share=0.1, max_tokens=(8, 24))
LIMITS = Limits(in_flight=256, request_s=30.0, drain_s=35.0)
LONGEST_S = 110.0
POLL_S = 0.03


class Load:
    """Requests under way. `records` are those that are over, times in seconds since the start."""

    def __init__(self, region: Region, driver: Driver, task: asyncio.Task[list[Record]]) -> None:
        self._region = region
        self._driver = driver
        self._task = task
        self.over = False

    @property
    def records(self) -> list[Record]:
        return self._driver.records

    @property
    def now_s(self) -> float:
        """Now, on the time line of the records."""
        return self._region.clock.now() - (self._driver.started_at or self._region.clock.now())

    async def sent(self, count: int) -> None:
        """Wait until `count` more requests were answered whole."""
        before = sum(r.ok for r in self.records)

        async def enough() -> bool:
            return sum(r.ok for r in self.records) >= before + count

        await self._region.until(enough, f"{count} more requests succeed")

    async def reaches(self, cell: str) -> float:
        """Wait until a request sent from now on was answered by the cell; the seconds it took."""
        since = self.now_s

        async def answered() -> bool:
            return any(r.ok and r.cell == cell and r.sent_s >= since for r in self.records)

        return await self._region.until(answered, f"{cell} answers a request")

    async def finish(self) -> list[Record]:
        """Send no more, let what is under way end; all records."""
        self.over = True
        return await self._task


@asynccontextmanager
async def load(region: Region, rps: float = 12.0, seed: int = 1) -> AsyncIterator[Load]:
    """Send requests until the block ends."""
    target = Target(region.fleet.gateway_url, region.fleet.model, region.fleet.by_address)
    driver = Driver(target, region.clock, LIMITS, seed)
    arrivals = schedule(rps=rps, seconds=LONGEST_S, seed=seed, mix=MIX)

    def until_over() -> Iterator[Arrival]:
        return itertools.takewhile(lambda _: not under_way.over, arrivals)

    task = asyncio.create_task(driver.run(until_over()), name="load")
    under_way = Load(region, driver, task)
    try:
        yield under_way
        await under_way.finish()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def failed(records: Iterable[Record]) -> list[str]:
    """The requests that were not answered whole, for people."""
    return [
        f"{r.id} sent at {r.sent_s:.2f} s to {r.cell or '?'}: {r.status} {r.error} after {r.e2e_ms:.0f} ms"
        for r in records
        if not r.ok
    ]


class WeightWatch:
    """Every set of weights that Envoy was seen to hold, in order; weights by cell id."""

    def __init__(self, region: Region) -> None:
        self.seen: list[dict[str, int]] = []
        self._region = region

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                weights = await self._region.weights()
            except AWAY as error:
                raise AssertionError("Envoy does not answer") from error
            if not self.seen or weights != self.seen[-1]:
                self.seen.append(weights)
            await asyncio.sleep(POLL_S)

    def of(self, *cells: str) -> list[tuple[int | None, ...]]:
        """The different weights that these cells had together, in order; None = no endpoint."""
        rows = [tuple(weights.get(cell) for cell in cells) for weights in self.seen]
        return [row for row, _ in itertools.groupby(rows)]


@asynccontextmanager
async def watching(region: Region) -> AsyncIterator[WeightWatch]:
    """Watch the weights until the block ends."""
    watch = WeightWatch(region)
    task = asyncio.create_task(watch.run(), name="look at weights")
    try:
        yield watch
        assert not task.done(), task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def stream_on(region: Region, cell: str, tokens: int) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream of `tokens` tokens through Envoy that this cell answers."""
    url = f"{region.fleet.gateway_url}/v1/completions"
    body = {"model": region.fleet.model, "prompt": "hello", "max_tokens": tokens, "stream": True}
    timeout = aiohttp.ClientTimeout(total=2 * PATIENCE_S)
    for _ in range(100):
        async with region.session.post(url, json=body, timeout=timeout) as response:
            assert response.status == 200
            if response.headers[CELL_HEADER] == cell:
                yield response
                return
            response.close()
    raise AssertionError(f"none of 100 requests went to {cell}")
