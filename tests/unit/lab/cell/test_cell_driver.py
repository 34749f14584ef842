"""The driver hands every token to its ticket, whatever happens around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace_lab.cell.driver import EngineDriver
from headrace_lab.cell.faults import Fault, FaultState, Order, read_order
from headrace_lab.cell.settings import CellSettings
from headrace_lab.engine import (
    ContextLengthError,
    Engine,
    EngineParameters,
    Finish,
    FinishReason,
    Output,
    Request,
)
from tests.support.clock import FakeClock

FAST = EngineParameters(decode_base_s=1e-6, decode_per_sequence_s=0.0, prefill_tokens_per_s=1e12)


class Seen:
    """Notes what an observer is told."""

    def __init__(self) -> None:
        self.tokens: list[Output] = []
        self.finishes: list[Finish] = []

    def token(self, output: Output) -> None:
        self.tokens.append(output)

    def finished(self, finish: Finish) -> None:
        self.finishes.append(finish)


class Bench:
    """A driver whose steps take no time to speak of."""

    def __init__(self) -> None:
        self.engine = Engine(FAST)
        self.faults = FaultState()
        self.seen = Seen()
        self.driver = EngineDriver(self.engine, FakeClock(), self.faults, self.seen)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    task = asyncio.create_task(bench.driver.run(), name="engine")
    yield bench
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_choices_of_one_ticket_come_interleaved_and_complete(bench: Bench) -> None:
    ticket = bench.driver.submit([Request("a-0", 5, 3), Request("a-1", 5, 2)])
    got = [(index, output.number) async for index, output in ticket]
    assert sorted(got) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    ticket.close()
    assert [f.reason for f in bench.seen.finishes] == [FinishReason.LENGTH] * 2
    assert len(bench.seen.tokens) == 5


async def test_an_idle_driver_wakes_for_each_request(bench: Bench) -> None:
    for i in range(3):
        await asyncio.sleep(0)
        ticket = bench.driver.submit([Request(f"a-{i}", 5, 1)])
        assert len([output async for _, output in ticket]) == 1


async def test_closing_early_aborts_and_frees_the_cache(bench: Bench) -> None:
    ticket = bench.driver.submit([Request("a", 100, 5000)])
    async for _ in ticket:
        break
    ticket.close()
    ticket.close()
    assert [f.reason for f in bench.seen.finishes] == [FinishReason.ABORT]
    assert bench.engine.stats(0.0).kv_blocks_used == 0


async def test_if_one_choice_does_not_fit_none_is_taken(bench: Bench) -> None:
    with pytest.raises(ContextLengthError):
        bench.driver.submit([Request("a-0", 5, 3), Request("a-1", 9000, 3)])
    assert bench.engine.begin_step(0.0) is None
    assert bench.seen.finishes == []


async def test_nothing_comes_while_it_hangs_and_all_of_it_afterwards(bench: Bench) -> None:
    bench.faults.apply(Order(Fault.HANG))
    ticket = bench.driver.submit([Request("a", 5, 2)])
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.seen.tokens == []
    bench.faults.apply(Order(Fault.CLEAR))
    assert len([output async for _, output in ticket]) == 2


async def test_slow_reaches_the_engine(bench: Bench) -> None:
    bench.faults.apply(Order(Fault.SLOW, 3.0))
    ticket = bench.driver.submit([Request("a", 5, 1)])
    assert len([output async for _, output in ticket]) == 1
    assert bench.engine.slowdown == 3.0


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"fault": "sulk"}',
        b'{"fault": ["hang"]}',
        b'{"fault": "slow", "factor": 0}',
        b'{"fault": "slow", "factor": "x"}',
        b'{"fault": "slow", "factor": NaN}',
        b'{"fault": "slow", "speed": 1}',
    ],
)
def test_bad_orders_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        read_order(raw)


def test_orders_are_read() -> None:
    assert read_order(b'{"fault": "slow", "factor": 2}') == Order(Fault.SLOW, 2.0)
    assert read_order(b'{"fault": "hang"}').fault is Fault.HANG


def test_settings_name_all_that_is_wrong() -> None:
    with pytest.raises(ValueError) as error:
        CellSettings(cell_id="a\nb", model="", loading_s=-1, keep_alive_s=0)
    for word in ("cell id", "model", "loading_s", "keep_alive_s"):
        assert word in str(error.value)
