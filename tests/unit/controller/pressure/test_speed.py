"""What cells can do is learned from what they did, and equal cells stay equal."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import CellState
from headrace_controller.pressure.speed import COMPUTE, SpeedLearner, Speeds
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.inventory.builders import beat, facts, hello, telemetry

TENSOR = pb.COMPUTE_MEASURE_TENSOR
BEAT_S = 0.5


@dataclasses.dataclass
class Cell:
    """One cell of a fleet: prompts of about `size` tokens come `rate` times a second, and each takes
    size / `speed` seconds of its tensor pipes, less the `cached` share of it."""

    speed: float = 2000.0
    rate: float = 2.0
    size: float = 500.0
    measure: Any = TENSOR
    counts: bool = True
    cached: float = 0.0
    models: tuple[str, ...] = ("m",)
    done: float = 0.0
    found: float = 0.0
    queue: list[list[float]] = dataclasses.field(default_factory=list)

    def work(self, luck: np.random.Generator) -> float:
        """Half a second; the share of it that the tensor pipes work."""
        for _ in range(luck.poisson(self.rate * BEAT_S)):
            size = max(20.0, luck.normal(self.size, 0.4 * self.size))
            self.queue.append([size * (1 - self.cached), size])
            self.found += size * self.cached  # counted when the prompt is taken in
        room = most = self.speed * BEAT_S
        while self.queue and room > 0:
            step = min(room, self.queue[0][0])
            self.queue[0][0] -= step
            room -= step
            if self.queue[0][0] <= 0:
                self.done += self.queue.pop(0)[1]  # a prompt is counted when it is done with
        return 1.0 - room / most


class Lab:
    """Cells in one pool, and what is learned of them."""

    def __init__(self, *cells: Cell, seed: int = 1) -> None:
        self.cells, self.luck, self.now = cells, np.random.default_rng(seed), 100.0
        self.fleet = Fleet(("g",))
        self.names = [f"c{number}" for number in range(len(cells))]
        self.fleet.register("n", "s", hello(*(facts(*each) for each in self._served())), self.now)
        self.fleet.state[: len(cells)] = CellState.READY
        self.learner = SpeedLearner()

    def tell(self, **changes: Any) -> Speeds:
        """One beat of all."""
        self.now += BEAT_S
        self.fleet.apply("n", telemetry(*(self._beat(*each, changes) for each in self._pairs())), self.now)
        return self.learn()

    def learn(self) -> Speeds:
        n = self.fleet.size
        ready = self.fleet.state[:n] == CellState.READY
        return self.learner.tick(self.fleet, self.fleet.signals[:n, COMPUTE].copy(), ready, self.now)

    def run(self, seconds: float) -> Speeds:
        for _ in range(round(seconds / BEAT_S)):
            found = self.tell()
        return found

    def _pairs(self) -> list[tuple[str, Cell]]:
        return list(zip(self.names, self.cells, strict=True))

    def _served(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(name, cell.models) for name, cell in self._pairs()]

    def serve(self, number: int, *models: str) -> None:
        """A cell serves these models from now on."""
        self.cells[number].models = models
        self.fleet.register("n", "s", hello(*(facts(*each) for each in self._served())), self.now)

    def _beat(self, name: str, cell: Cell, changes: dict[str, Any]) -> pb.CellBeat:
        active = cell.work(self.luck)
        said = beat(name, signals={"compute_active": active}, compute_measure=cell.measure, **changes)
        if cell.counts:
            said.work.prompt_tokens, said.work.generated_tokens = int(cell.done), 0
            said.work.cached_tokens = int(cell.found)
        return said


@pytest.mark.parametrize("seed", range(4))
def test_equal_cells_are_equal_whatever_their_luck(seed: int) -> None:
    lab = Lab(*(Cell() for _ in range(9)), seed=seed)
    for _ in range(20):
        assert lab.run(15.0).relative.tolist() == [1.0] * 9


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_cell_is_known_within_half_a_minute(seed: int) -> None:
    lab = Lab(*(Cell(speed=1200.0 if number == 4 else 2000.0) for number in range(9)), seed=seed)
    found = lab.run(30.0)
    assert found.relative[4] == pytest.approx(0.6, rel=0.15)
    assert np.delete(found.relative, 4).tolist() == [1.0] * 8
    found = lab.run(120.0)
    assert found.relative[4] == pytest.approx(0.6, rel=0.06)
    assert found.tokens_per_s[4] == pytest.approx(1200.0, rel=0.05)


def test_it_does_not_depend_on_how_much_a_cell_is_given() -> None:
    lab = Lab(*(Cell(rate=rate) for rate in (0.5, 1.0, 2.0, 3.0)))
    assert lab.run(240.0).relative.tolist() == [1.0] * 4


def test_few_long_prompts_take_longer_and_mislead_nobody() -> None:
    lab = Lab(*(Cell(rate=0.1, size=8000.0) for _ in range(9)))
    for _ in range(30):
        assert lab.run(20.0).relative.tolist() == [1.0] * 9


@pytest.mark.parametrize("seed", range(4))
def test_a_cell_that_becomes_slower_is_followed_within_seconds(seed: int) -> None:
    lab = Lab(*(Cell() for _ in range(5)), seed=seed)
    lab.run(300.0)
    lab.cells[2].speed = 1000.0
    assert lab.run(15.0).relative[2] < 0.8
    found = lab.run(30.0)
    assert found.relative[2] == pytest.approx(0.5, rel=0.2)
    assert np.delete(found.relative, 2).tolist() == [1.0] * 4


@pytest.mark.parametrize("measure", [pb.COMPUTE_MEASURE_SM, pb.COMPUTE_MEASURE_ENGINE, 0])
def test_activity_of_another_kind_teaches_nothing(measure: Any) -> None:
    lab = Lab(Cell(), Cell(), Cell(speed=500.0, rate=0.5, measure=measure))
    found = lab.run(60.0)
    assert found.blind.tolist() == [False, False, True]
    assert found.relative.tolist() == [1.0] * 3
    assert np.isnan(found.tokens_per_s[2])


def test_an_engine_that_counts_no_tokens_teaches_nothing() -> None:
    lab = Lab(Cell(), Cell(), Cell(speed=500.0, rate=0.5, counts=False))
    found = lab.run(60.0)
    assert found.blind.tolist() == [False, False, True]
    assert found.relative.tolist() == [1.0] * 3


def test_what_was_learned_stays_when_the_figures_are_lost() -> None:
    lab = Lab(Cell(), Cell(), Cell(speed=1000.0, rate=1.0))
    learned = lab.run(120.0).relative
    lab.cells[2].measure = 0
    found = lab.run(120.0)
    assert found.relative.tolist() == learned.tolist()
    assert not found.blind.any()


@pytest.mark.parametrize("change", ["restart", "outage", "stale"])
def test_what_is_between_two_stretches_is_left_out(change: str) -> None:
    lab = Lab(Cell(), Cell(), Cell())
    lab.run(60.0)
    for _ in range(5):
        if change == "restart":
            lab.cells[1].done = 0.0
        elif change == "outage":
            lab.now += 30.0
            lab.cells[1].done += 1e6
        else:
            stale = pb.SourceBeat(name="engine", status=pb.SOURCE_STATUS_STALE, age_ms=0)
            for _ in range(10):
                lab.tell(sources=[stale])
                lab.cells[1].done += 1e5
        assert lab.run(20.0).relative.tolist() == [1.0] * 3


@pytest.mark.parametrize("others", [1, 2, 3])
def test_no_cell_is_believed_to_do_the_work_of_more_than_twenty(others: int) -> None:
    """Whatever its agent says of its tokens, or of its tensor pipes."""
    lab = Lab(Cell(speed=1e7, rate=20.0), *(Cell() for _ in range(others)))
    found = lab.run(120.0).relative
    assert found[0] / found[1:] == pytest.approx([np.exp(3.0)] * others, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_in_the_cache_is_no_work_whenever_it_is_counted(seed: int) -> None:
    """An engine counts it as it takes a prompt in, and the prompt when it is done."""
    lab = Lab(*(Cell(size=5000.0, rate=1.0, cached=0.8) for _ in range(3)), seed=seed)
    assert lab.run(300.0).tokens_per_s == pytest.approx([2000.0] * 3, rel=0.1)


def test_a_count_that_leaps_is_no_work_and_learning_goes_on() -> None:
    """One of the servers that an engine's count is the sum of comes back."""
    lab = Lab(Cell(), Cell(), Cell())
    lab.run(60.0)
    lab.cells[1].done += 1e9
    lab.run(1.0)
    lab.cells[1].speed = 1000.0
    assert lab.run(120.0).relative.tolist() == pytest.approx([1.0, 0.5, 1.0], rel=0.15)


def test_equals_are_equal_where_one_of_them_serves_more_models() -> None:
    fast, both = Cell(speed=8000.0), Cell(speed=8000.0, models=("m", "adapter"))
    lab = Lab(fast, both, *(Cell(rate=1.0) for _ in range(3)))
    found = lab.run(120.0).relative
    assert found[0] == pytest.approx(4.0, rel=0.1)
    assert found[1] == pytest.approx(found[0], rel=0.06)


def test_a_cell_that_serves_another_model_begins_anew() -> None:
    lab = Lab(Cell(), Cell(), Cell(speed=8000.0))
    assert lab.run(120.0).relative[2] > 3.0
    lab.serve(2, "m", "adapter")
    assert lab.run(10.0).relative[2] > 3.0
    lab.serve(2, "m")
    assert lab.run(10.0).relative[2] > 3.0
    lab.serve(2, "other", "adapter")
    found = lab.learn()
    assert found.relative[2] == 1.0
    assert np.isnan(found.tokens_per_s[2])


def test_a_row_that_is_used_again_knows_nothing_of_the_cell_before() -> None:
    lab = Lab(Cell(), Cell(), Cell(speed=1000.0, rate=1.0))
    assert lab.run(120.0).relative[2] < 0.6
    row = lab.fleet.row("c2")
    lab.fleet.remove("c2")
    lab.fleet.register("m", "s", hello("other"), lab.now)
    assert lab.fleet.row("other") == row
    found = lab.learn()
    assert found.relative[row] == 1.0
    assert found.blind[row]


def test_a_record_brings_what_was_learned_to_the_next_controller() -> None:
    lab = Lab(Cell(), Cell(), Cell(speed=1000.0, rate=1.0))
    before = lab.run(120.0)
    records = [lab.learner.record(lab.fleet, row) for row in range(3)]
    lab.learner = SpeedLearner()
    for row, record in enumerate(records):
        lab.learner.restore(lab.fleet, row, record)
    after = lab.learn()
    assert after.relative.tolist() == before.relative.tolist()
    assert after.tokens_per_s == pytest.approx(before.tokens_per_s, rel=0.05)
    assert not after.blind.any()
