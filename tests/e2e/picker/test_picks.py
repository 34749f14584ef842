"""A stock Envoy asks the picker, obeys it, and does without it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from headrace_controller.capability import SizeBound
from headrace_controller.picker import cost
from headrace_controller.picker.ejections import FAILURES
from headrace_controller.picker.requests import Outcome
from headrace_controller.projection.plan import ClassShape, Endpoint, Endpoints, Plan, PoolShape
from tests.e2e.picker.stack import PickedStack, running_stack
from tests.e2e.xds.cells import Cell, CuttingCell, running_cells
from tests.e2e.xds.stack import GATEWAY, until, until_async


async def served_by(stack: PickedStack, count: int = 30, **more: object) -> Counter[str]:
    """Who answers so many requests; every one must succeed."""
    seen: Counter[str] = Counter()
    for _ in range(count):
        answer = await stack.ask(**more)
        assert answer.status == 200
        seen[answer.body["cell"]] += 1
    return seen


async def test_the_named_cell_serves_whatever_the_weights_say(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {a: 100, b: 1}) as stack:
        stack.picker.script = (b.address,)
        assert await served_by(stack) == {"b": 30}
        assert stack.control.status.nacks == 0


async def test_a_cell_that_fails_without_a_body_is_ejected(tmp_path: Path) -> None:
    """It is done with a request at once, so it looks idle."""
    bad, good = CuttingCell("bad", b"HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n"), Cell("good")
    good.delay_s = 0.05
    async with running_cells(bad, good), running_stack(tmp_path, {bad: 100, good: 1}) as stack:
        statuses = Counter([(await stack.ask(stream=True)).status for _ in range(12)])
        assert statuses[500] <= FAILURES
        assert statuses == {500: statuses[500], 200: 12 - statuses[500]}
        await until(lambda: len(stack.control.served) == 12)


async def test_the_picker_is_told_what_the_request_is_and_what_came_of_it(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    a.chunks, a.chunk_gap_s, a.delay_s = 3, 0.7, 0.2
    async with running_cells(a, b), running_stack(tmp_path, {a: 1}) as stack:
        began = stack.picker.clock.now()
        answer = await stack.ask(stream=True, max_tokens=77, user="u")
        took = stack.picker.clock.now() - began
        assert "[DONE]" in answer.body
        ask = stack.picker.asks[0]
        assert (ask.model, ask.output, ask.streams, ask.session) == ("m", 77, True, "u")
        assert ask.size is not None
        assert ask.size > 50
        assert ask.key == answer.headers["x-request-id"]
        await until(lambda: bool(stack.control.served))
        served = stack.control.served[0]
        assert (served.cell, served.as_named) == ("a", True)
        # The headers came at once after the delay, the first chunk with them; the stream took longer, by
        # three gaps.
        assert served.observed_s is not None
        assert 0.19 < served.observed_s < took - 0.7
        trace = stack.picker.recent.view(ask.key, stack.picker.clock.now())
        assert trace is not None
        assert (trace.served_by, trace.observed_s) == ("a", served.observed_s)


async def test_a_header_names_the_session_before_the_body_does(tmp_path: Path) -> None:
    a = Cell("a")
    async with running_cells(a), running_stack(tmp_path, {a: 1}) as stack:
        body = {"model": "m", "prompt": "x", "user": "u"}
        await stack.post(json=body, headers={"x-session-id": "mine"})
        assert stack.picker.asks[0].session == "mine"


async def test_a_body_without_a_length_is_measured(tmp_path: Path) -> None:
    a = Cell("a")
    async with running_cells(a), running_stack(tmp_path, {a: 1}) as stack:
        text = b'{"model": "m", "prompt": "' + b"x" * 5000 + b'"}'

        async def pieces():  # type: ignore[no-untyped-def]
            yield text[:100]
            yield text[100:]

        await stack.post(data=pieces(), headers={"content-type": "application/json"})
        assert stack.picker.asks[0].size == len(text)


async def test_an_endpoint_that_envoy_does_not_hold_is_passed_over(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {a: 1, b: 1}) as stack:
        for script in (("10.9.9.9:1",), ("no address",), ("",), ("10.9.9.9:1", "10.9.9.9:2")):
            stack.picker.script = script
            seen = await served_by(stack)
            assert set(seen) == {"a", "b"}, script
        stack.picker.script = ("10.9.9.9:1", b.address)
        assert await served_by(stack) == {"b": 30}


async def test_a_removed_cell_that_is_still_named_gets_nothing(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {a: 1, b: 1}) as stack:
        stack.picker.script = (a.address,)
        assert await served_by(stack, 5) == {"a": 5}
        stack.control.publish({"m": {b: 1}})
        await stack.control.in_force()
        assert await served_by(stack, 20) == {"b": 20}


async def test_retries_go_to_the_next_named_cell(tmp_path: Path) -> None:
    dead, b, c = Cell("dead"), Cell("b"), Cell("c")
    async with running_cells(dead, b, c), running_stack(tmp_path, {dead: 9, b: 9, c: 1}) as stack:
        await dead.stop()
        stack.picker.script = (dead.address, c.address)
        assert await served_by(stack, 10) == {"c": 10}


async def test_a_retried_request_is_booked_where_it_is_served(tmp_path: Path) -> None:
    dead, b, c = Cell("dead"), Cell("b"), Cell("c")
    c.delay_s = 0.3
    async with running_cells(dead, b, c), running_stack(tmp_path, {dead: 1, b: 1, c: 1}) as stack:
        book = stack.picker.book
        slots = book.cells()
        # What others have there makes them dearer, each more than the one before.
        book.table[[slots["c"], slots["b"]], cost.OTHERS] = [9_000_000, 90_000_000]
        book.table[:, cost.OTHERS_AT] = 1e12
        await dead.stop()
        asked = asyncio.create_task(stack.ask(stream=True), name="ask")
        await until(lambda: book.table[slots["dead"], cost.PENDING] > 0)
        answer = await asked
        assert answer.status == 200, answer
        await until(lambda: len(stack.control.served) == 1)
        (served,) = stack.control.served
        assert (served.cell, served.as_named) == ("c", False)
        assert not book.table[:, cost.PENDING].any()
        assert [book.table[slots[name], cost.RUNNING] for name in ("dead", "b", "c")] == [0, 0, 1]
        book.check()


@pytest.mark.parametrize(
    "headers",
    [
        {"x-gateway-destination-endpoint": "{}"},
        {"x-headrace-endpoint": "{}"},
        {"endpoints": "{}"},
        {"headrace-pick": "{}"},
        {"x-headrace-gateway": "gw-other"},
    ],
)
async def test_no_client_can_choose_its_cell(tmp_path: Path, headers: dict[str, str]) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {a: 100, b: 1}) as stack:
        sent = {name: value.format(b.address) for name, value in headers.items()}
        body = {
            "model": "m",
            "prompt": "x",
            "endpoints": b.address,
            "headrace-pick": {"endpoints": b.address},
        }
        for script, on in (((a.address,), True), (None, False)):
            stack.picker.script, stack.picker.on = script, on
            seen: Counter[str] = Counter()
            for _ in range(20):
                answer = await stack.post(json=body, headers=sent)
                seen[answer.body["cell"]] += 1
            assert seen["a"] >= 18, (script, seen)


async def test_foreign_endpoint_headers_do_not_reach_engines(tmp_path: Path) -> None:
    a = Cell("a")
    async with running_cells(a), running_stack(tmp_path, {a: 1}) as stack:
        seen = await stack.envoy.get("/config_dump?resource=dynamic_route_configs")
        assert "x-gateway-destination-endpoint" in seen
        assert '"request_headers_to_remove"' in seen


async def test_a_stalled_picker_costs_its_time_out_and_no_request(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    weights = {a: 1, b: 1}
    async with running_cells(a, b), running_stack(tmp_path, weights, timeout_s=0.2) as stack:
        stack.picker.script = (a.address,)
        stack.control.stall_s = 1.0
        answers = await asyncio.gather(*(stack.ask() for _ in range(20)))
        assert {answer.status for answer in answers} == {200}
        assert {answer.body["cell"] for answer in answers} == {"a", "b"}
        stack.control.stall_s = 0.0

        async def obeyed() -> bool:
            return (await served_by(stack, 20))["a"] > 15

        await until_async(obeyed)


async def test_a_picker_that_is_gone_costs_no_request(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), running_stack(tmp_path, {a: 1, b: 1}) as stack:
        stack.picker.script = (a.address,)
        assert await served_by(stack, 5) == {"a": 5}
        await stack.control.stop()
        assert set(await served_by(stack)) == {"a", "b"}


async def test_streams_pass_whole_after_the_first_chunk(tmp_path: Path) -> None:
    a = Cell("a")
    a.chunks, a.chunk_gap_s = 20, 0.01
    async with running_cells(a), running_stack(tmp_path, {a: 1}) as stack:
        for _ in range(5):
            answer = await stack.ask(stream=True)
            assert answer.body.count("data: ") == 21
        await until(lambda: len(stack.control.served) == 5)
        assert stack.picker.book.open_requests == 0


async def test_a_client_that_leaves_leaves_nothing_pending(tmp_path: Path) -> None:
    a = Cell("a")
    a.delay_s = 60.0
    async with running_cells(a), running_stack(tmp_path, {a: 1}) as stack:
        task = asyncio.create_task(stack.ask(stream=True), name="leaves")
        await until(lambda: stack.picker.book.table[0, cost.PENDING] > 0 and a.requests == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: stack.picker.book.open_requests == 0)
        assert stack.picker.book.table[0, cost.PENDING] == 0
        stack.picker.book.check()
        await until(lambda: a.gone == 1)


async def test_requests_for_nobody_are_answered_as_ever(tmp_path: Path) -> None:
    a = Cell("a")
    async with running_cells(a), running_stack(tmp_path, {a: 1}) as stack:
        assert (await stack.ask(model="unknown")).status == 404
        assert (await stack.request("GET", "/v1/models")).status == 200
        assert (await stack.post(data=b"no json", headers={"content-type": "application/json"})).status == 400
        assert set(stack.control.outcomes) == {Outcome.NO_POOL}


async def test_cells_with_the_same_beginning_are_found_by_the_body(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    settings = {"prefix_affinity": True, "prefix_block_bytes": 256}
    async with running_cells(a, b), running_stack(tmp_path, {a: 1, b: 1}, **settings) as stack:
        prompts = ["x" * 20_000, "y" * 20_000]
        homes = [(await stack.ask(prompt=prompt, stream=True)).body["cell"] for prompt in prompts]
        assert len(stack.picker.asks[0].blocks) == 64
        for _ in range(5):
            for prompt, home in zip(prompts, homes, strict=True):
                assert (await stack.ask(prompt=prompt + "z", stream=True)).body["cell"] == home


async def test_a_body_that_is_too_long_to_be_sent_goes_by_the_weights(tmp_path: Path) -> None:
    """gRPC takes messages of 4 MiB."""
    a = Cell("a")
    async with running_cells(a), running_stack(tmp_path, {a: 1}, prefix_affinity=True) as stack:
        answer = await stack.ask(prompt="x" * 5_000_000)
        assert (answer.status, answer.body["length"]) == (200, 5_000_000)
        assert (await stack.ask(prompt="short")).status == 200
        assert len(stack.picker.asks) == 1


async def test_the_class_that_a_route_chose_bounds_what_may_be_named(tmp_path: Path) -> None:
    small, large = Cell("small"), Cell("large")
    async with running_cells(small, large), running_stack(tmp_path, {small: 1, large: 1}) as stack:
        publish_classes(stack, small, large)
        await stack.control.in_force()
        stack.picker.script = (small.address,)
        assert (await stack.ask(prompt="x")).body["cell"] == "small"
        # It is no endpoint of the class that this one went to.
        assert (await stack.ask(prompt="x" * 5000)).body["cell"] == "large"
        assert [ask.routed_length for ask in stack.picker.asks[-2:]] == [1024, 32768]
        assert {ask.model for ask in stack.picker.asks} == {"m"}


def publish_classes(stack: PickedStack, small: Cell, large: Cell) -> None:
    """One pool in two classes: bodies below 2,000 bytes may go to both cells."""

    def of(*cells: Cell) -> dict[str, Endpoints]:
        rows = (Endpoint(cell.name, "127.0.0.1", cell.port, 1) for cell in cells)
        return {GATEWAY: Endpoints.of(rows)}

    bound = SizeBound(None, None, 2000)
    shape = PoolShape(max_model_len=32768, classes=(ClassShape(1024, (bound,)), ClassShape(32768)))
    plan = Plan({"m": of(small, large)}, {"m": shape}, {"m": [of(small, large), of(large)]})
    stack.control.server.publish(GATEWAY, stack.control.builder.build(plan))
