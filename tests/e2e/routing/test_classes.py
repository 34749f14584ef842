"""A pool whose cells take prompts of different lengths, behind a real Envoy."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from headrace_controller.capability import Guide, Learner, SizeCounts, bucket_of, no_counts
from headrace_controller.capability.learner import GUIDE_INTERVAL_S
from headrace_controller.settings import CapabilitySettings
from tests.e2e.routing.engines import Engine
from tests.e2e.routing.region import Region, running_region
from tests.e2e.xds.stack import until, until_async

SMALL = 1024
BYTES_PER_TOKEN = 4.0
FITS = int(SMALL * BYTES_PER_TOKEN)


def fleet() -> tuple[Engine, Engine, Engine]:
    return Engine("small", max_model_len=SMALL), Engine("large-1"), Engine("large-2")


class Traffic:
    """Seeded requests, 30 % of them with a prompt that a small cell must refuse."""

    def __init__(self, region: Region, seed: int, short: tuple[int, int] = (50, 1000)) -> None:
        self._region = region
        self._random = random.Random(seed)
        self._short = short
        self.long = self.statuses = 0
        self.seen: Counter[int] = Counter()
        self.cells: Counter[str] = Counter()
        self.sizes: list[tuple[int, int]] = []

    async def run(self, requests: int) -> None:
        for _ in range(requests):
            is_long = self._random.random() < 0.3
            size = self._random.randint(FITS + 500, 60_000) if is_long else self._random.randint(*self._short)
            answer = await self._region.ask(prompt="x" * size)
            self.long += is_long
            self.seen[answer.status] += 1
            self.sizes.append((size, answer.status))
            if answer.status == 200:
                self.cells[answer.body["cell"]] += 1


async def test_no_long_prompt_leaks_from_the_first_request_on(tmp_path: Path) -> None:
    small, *large = fleet()
    async with running_region(tmp_path, small, *large) as region:
        await region.in_force()
        traffic = Traffic(region, seed=1)
        await traffic.run(300)
        assert traffic.long > 60
        assert (small.refused, traffic.seen) == (0, {200: 300})
        # Short prompts go round all three cells.
        assert traffic.cells["small"] > 40


async def test_the_boundary_is_learned_and_still_nothing_leaks(tmp_path: Path) -> None:
    """Prompts of 2,000 to 3,500 bytes fit the small cell, which the start value does not know."""
    small, *large = fleet()
    settings = CapabilitySettings()
    async with running_region(tmp_path, small, *large, guide=Guide(settings)) as region:
        await region.in_force()
        learner = Learner(settings)
        counts = {("m", SMALL): no_counts(), ("m", 32768): no_counts()}
        # Hours in fast motion: only the requests below the boundary come to `small`.
        for turn in range(400):
            tell(counts, learner.guide)
            learner.learn(counts, {"m": [SMALL, 32768]}, now=turn * (GUIDE_INTERVAL_S + 1))
        region.plans.guide = learner.guide
        region.publish([small, *large])
        await region.in_force()
        assert 3000 < learner.guide.bounds("m", SMALL)[0].bytes_below <= FITS
        traffic = Traffic(region, seed=2, short=(2000, 2700))
        await traffic.run(300)
        assert small.refused <= 0.01 * traffic.long
        assert traffic.cells["small"] > 30


def tell(counts: SizeCounts, guide: Guide) -> None:
    """A minute of bodies from 100 bytes to 100 kB: what the gateways would report of them."""
    (first, *_) = guide.bounds("m", SMALL)
    for size in [*range(100, 6000, 50), *range(6000, 100_000, 2000)]:
        if size >= first.bytes_below:
            counts["m", 32768][bucket_of(size), 0] += 1
        else:
            counts["m", SMALL][bucket_of(size), 1 if size > FITS else 0] += 1


async def test_what_does_not_say_its_length_goes_where_any_length_fits(tmp_path: Path) -> None:
    small, *large = fleet()

    async def pieces() -> AsyncIterator[bytes]:
        yield json.dumps({"model": "m", "prompt": "x" * 20_000}).encode()

    async with running_region(tmp_path, small, *large) as region:
        for _ in range(6):
            answer = await region.send(data=pieces(), headers={"content-type": "application/json"})
            assert (answer.status, answer.body["cell"] != "small") == (200, True)


async def test_the_output_that_is_asked_for_counts(tmp_path: Path) -> None:
    small, *large = fleet()
    async with running_region(tmp_path, small, *large) as region:
        for field in ("max_tokens", "max_completion_tokens"):
            for output in (900, 1000, 5000):
                for _ in range(4):
                    answer = await region.ask(prompt="x" * 400, **{field: output})
                    assert (answer.status, answer.body["cell"] != "small") == (200, True)
        cells = {(await region.ask(prompt="x" * 400, max_tokens=100)).body["cell"] for _ in range(9)}
        assert "small" in cells
        # What the engine would not understand either still gets its answer from an engine.
        assert (await region.ask(max_tokens=None)).status == 200


async def test_a_class_without_a_ready_cell_is_served_by_what_there_is(tmp_path: Path) -> None:
    small, *large = fleet()
    async with running_region(tmp_path, small, *large) as region:
        region.publish([small, *large], failed=[small])
        await comes(region, 200, "large-1", "large-2")
        region.publish([small, *large], failed=large)
        await comes(region, 200, "small")
        # It alone is left: its own word on a long prompt says more than a 503 would.
        refused = await region.ask(prompt="x" * 20_000)
        assert (refused.status, refused.body["error"]["message"]) == (400, "more than 1024 tokens")
        region.publish([small, *large], failed=[small, *large])
        await comes(region, 503)


async def comes(region: Region, status: int, *cells: str) -> None:
    """What is published is in force, and answers come to be of one kind: Envoy acknowledges a change
    before all its workers have it."""
    await region.in_force()

    async def seen() -> bool:
        answers = [await region.ask() for _ in range(4)]
        return all(each.status == status and (not cells or each.body["cell"] in cells) for each in answers)

    await until_async(seen)


async def test_long_prompts_pass_a_pool_in_classes(tmp_path: Path) -> None:
    small, large = Engine("small", max_model_len=SMALL), Engine("large", max_model_len=1_000_000)
    async with running_region(tmp_path, small, large) as region:
        answer = await region.ask(prompt="x" * 1_500_000)
        assert (answer.status, answer.body["cell"]) == (200, "large")


async def test_a_pool_that_comes_to_have_classes_cuts_no_stream(tmp_path: Path) -> None:
    small, large, _ = fleet()
    async with running_region(tmp_path, large) as region:
        await small.start()
        try:
            asked = asyncio.create_task(
                region.send(json={"model": "m", "prompt": "x", "stream": True}), name="a long stream"
            )

            async def begun() -> bool:
                return bool(large.bodies)

            await until_async(begun)
            region.publish([small, large])
            await region.in_force()

            async def gone() -> bool:
                return not await region.envoy.hosts("pool/m")

            await until_async(gone)
            assert {(await region.ask()).body["cell"] for _ in range(4)} == {"small", "large-1"}
            large.finish.set()
            answer = await asked
            assert (answer.status, answer.body) == (200, "data: 1\n\ndata: [DONE]\n\n")
        finally:
            large.finish.set()
            await small.stop()


async def test_no_request_fails_while_a_pool_is_divided_and_made_one_again(tmp_path: Path) -> None:
    """The clusters of before must stand until the routes to the new ones are taken."""
    small, *large = fleet()
    whole, divided = Guide(CapabilitySettings(classes=False)), Guide()
    async with running_region(tmp_path, small, *large) as region:
        await region.in_force()
        done = asyncio.Event()
        statuses: Counter[int] = Counter()

        async def keep_asking() -> None:
            while not done.is_set():
                statuses[(await region.ask()).status] += 1

        asking = [asyncio.create_task(keep_asking(), name=f"client {number}") for number in range(4)]
        try:
            for guide in (whole, divided) * 4:
                region.plans.guide = guide
                region.publish([small, *large])
                await region.in_force()
                await asyncio.sleep(0.1)
            await until(lambda: sum(statuses.values()) > 50)
        finally:
            done.set()
            await asyncio.gather(*asking)
        assert set(statuses) == {200}
