"""Envoy spreads requests as the published weights say, and takes changes at once."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Literal

import pytest

from headrace_controller.settings import EnvoySettings
from headrace_lab.load.arrivals import Arrival
from headrace_lab.sim.choosers import RoundRobin
from headrace_lab.sim.jobs import Job
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.stack import Stack, running_stack, until, until_async


async def share(stack: Stack, cell: Cell, requests: int = 300) -> float:
    """The share of requests that `cell` gets, in percent; every request must succeed.

    One worker takes turns, wherever it begins: a share is off by a request or two and no more.
    """
    await stack.passing()
    seen: Counter[str] = Counter()
    for _ in range(requests):
        answer = await stack.ask()
        assert answer.status == 200
        seen[answer.body["cell"]] += 1
    return 100 * seen[cell.name] / requests


async def test_weights_are_honoured_and_change_at_once(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 90, b: 10}}) as stack:
        await stack.control.in_force()
        assert await share(stack, a) == pytest.approx(90, abs=4)
        pushes = stack.control.status.pushes
        stack.control.publish({"m": {a: 10, b: 90}})
        await stack.control.in_force()
        assert stack.control.status.pushes == pushes + 1
        assert await share(stack, a) == pytest.approx(10, abs=4)


@pytest.mark.parametrize("health_checks", [True, False])
async def test_a_removed_endpoint_is_gone_at_once(
    tmp_path: Path, health_checks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Although it still passes its health checks, which by themselves would keep it."""
    a, b = Cell("a"), Cell("b")
    settings = EnvoySettings(health_checks=health_checks, expose_upstream=True)
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1, b: 1}}, settings) as stack:
        assert set(await stack.envoy.hosts("pool/m")) == {a.address, b.address}

        async def gone() -> bool:
            return b.address not in await stack.envoy.hosts("pool/m")

        began = time.monotonic()
        stack.control.publish({"m": {a: 1}})
        await until_async(gone)
        elapsed = time.monotonic() - began
        with capsys.disabled():
            print(f"\n  removed endpoint gone from /clusters after {1000 * elapsed:.1f} ms")
        assert await share(stack, a, 50) == 100


async def test_a_removed_endpoint_keeps_its_streams(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    a.chunks, a.chunk_gap_s = 5, 0.15
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1}}) as stack:
        stream = asyncio.create_task(stack.ask(), name="stream")
        await until(lambda: a.requests > 0)
        stack.control.publish({"m": {b: 1}})

        async def goes_to_the_other() -> bool:
            body = (await stack.ask()).body  # that of the one which is removed is a stream, no JSON
            return isinstance(body, dict) and body.get("cell") == "b"

        # An Envoy says that it has taken endpoints before each of its workers goes by them, and gives a host
        # no request before it has passed its first check.
        await until_async(goes_to_the_other)
        answer = await stream
        assert answer.status == 200
        assert "[DONE]" in answer.body


async def test_pools_come_and_go_without_a_failed_request(tmp_path: Path) -> None:
    """Routes wait for their clusters, so that a new model never meets a missing cluster."""
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {"m": {a: 1}}) as stack:
        seen: set[int] = set()
        for turn in range(6):
            stack.control.publish({"m": {a: 1}, "late": {b: 1}} if turn % 2 == 0 else {"m": {a: 1}})
            while not all(each.in_force for each in stack.control.status.types.values()):
                seen.add((await stack.ask("late")).status)
                assert (await stack.ask("m")).status == 200
            assert (await stack.ask("late")).status == (200 if turn % 2 == 0 else 404)
        assert seen <= {200, 404}
        assert stack.control.status.nacks == 0


@pytest.mark.parametrize("baseline", ["rr", "lr"])
async def test_a_baseline_ignores_weights(tmp_path: Path, baseline: Literal["rr", "lr"]) -> None:
    a, b = Cell("a"), Cell("b")
    async with (
        running_cells(a, b),
        running_stack(tmp_path, {"m": {a: 90, b: 10}}, baseline=baseline) as stack,
    ):
        await stack.control.in_force()
        assert await share(stack, a, 200) == pytest.approx(50, abs=12)
        assert stack.control.status.nacks == 0


def are_turns(order: str, weights: dict[str, int]) -> bool:
    """Whether each host's next turn comes 1 / weight after its last, wherever each began: for every two
    hosts there is a distance between their first turns that explains who came before whom."""
    count = dict.fromkeys(weights, 0)
    turns: list[tuple[str, float]] = []
    for host in order:
        turns.append((host, count[host] / weights[host]))
        count[host] += 1
    most: dict[tuple[str, str], float] = {}
    for at, (host, when) in enumerate(turns):
        for other, then in turns[at + 1 : at + 20]:
            pair = (host, other)
            most[pair] = min(most.get(pair, math.inf), then - when)
    return all(most[(a, b)] + most[(b, a)] >= -1e-9 for a, b in combinations(weights, 2))


async def test_unequal_weights_take_turns_as_the_simulator_has_it(tmp_path: Path) -> None:
    """One worker's order of hosts under weighted round robin: who is next, not only how often."""
    weights = {"a": 100, "b": 61, "c": 86}
    cells = {name: Cell(name) for name in weights}
    told = {"m": {cells[name]: weight for name, weight in weights.items()}}
    async with running_cells(*cells.values()), running_stack(tmp_path, told) as stack:
        await stack.control.in_force()
        seen = "".join([(await stack.ask()).body["cell"] for _ in range(200)])
    chooser = RoundRobin(1)
    chooser.update(weights, 0.0)
    request = Job(Arrival(1, 0.0, "short", 100, 10), 0.0, 500)
    modelled = "".join([str(chooser.choose(request, 0.0)) for _ in range(200)])
    assert are_turns(modelled, weights)
    assert are_turns(seen, weights)
    # Weights drawn at random would have the same shares, and other queues.
    luck = random.Random(1)
    assert not are_turns("".join(luck.choices(list(weights), list(weights.values()), k=200)), weights)
