"""The controller's picker at the simulated gateway."""

from __future__ import annotations

import pytest

from headrace_controller.picker.requests import Ask, Outcome
from headrace_lab.load.arrivals import Arrival
from headrace_lab.scenarios.fleets import FleetPlan
from headrace_lab.sim.pickers import SIZE_SPREAD, Picked
from headrace_lab.sim.world import World
from tests.simulation.whole_lab.worlds import every, fleet, shares, world


def asks(made: World) -> list[Ask]:
    """What the pickers of a world will be asked."""
    assert made.pickers is not None
    heard: list[Ask] = []
    for picker in made.pickers.pickers:
        pick = picker.pick

        def listening(gateway: str, ask: Ask, now: float, pick: object = pick) -> object:
            heard.append(ask)
            return pick(gateway, ask, now)  # type: ignore[operator]

        picker.pick = listening  # type: ignore[method-assign, assignment]
    return heard


def test_a_slow_cell_gets_less_at_once_and_its_share_is_learned() -> None:
    made = world("headrace", fleet(3, east_2={"speed": 0.3}))
    jobs = made.run(every(0.2, 60.0), 90.0)
    assert all(job.ok for job in jobs)
    late = shares([job for job in jobs if job.sent_at > made.origin + 10])
    assert late.get("east-2", 0.0) < 0.1


def test_equal_cells_that_answer_fast_are_asked_alike() -> None:
    plan = FleetPlan.model_validate({"model": "1b", "max_model_len": 8192, "sites": {"east": ["edge"] * 3}})
    jobs = world("headrace", plan).run(every(0.03, 20.0, prompt=128), 30.0)
    assert all(job.ok for job in jobs)
    assert min(shares(jobs).values()) > 0.25


def test_the_picker_knows_bytes_and_not_tokens() -> None:
    made = world("headrace", fleet(2))
    heard = asks(made)
    jobs = made.run(every(0.5, 20.0), 40.0)
    assert len(heard) == len(jobs) == 40
    assert all(ask.tokens is None and ask.blocks == () for ask in heard)
    off = [ask.size / job.body_bytes for ask, job in zip(heard, jobs, strict=True) if ask.size]
    assert max(off) <= 1 + SIZE_SPREAD
    assert min(off) >= 1 - SIZE_SPREAD - 0.01
    assert max(off) - min(off) > SIZE_SPREAD


def test_what_was_asked_is_the_same_at_each_try_of_a_seed() -> None:
    one, other = (world("headrace", fleet(2)) for _ in range(2))
    heard = asks(one), asks(other)
    for made in (one, other):
        made.run(every(0.5, 5.0), 20.0)
    assert heard[0] == heard[1]


def test_it_hears_of_a_first_token_when_that_reaches_the_gateway() -> None:
    made = world("headrace", fleet(2))
    assert made.pickers is not None
    (picker,) = made.pickers.pickers
    heard: list[tuple[str, float]] = []
    answered = picker.answered

    def listening(key: str, now: float, *rest: object, **more: object) -> object:
        heard.append((key, now))
        return answered(key, now, *rest, **more)  # type: ignore[arg-type]

    picker.answered = listening  # type: ignore[method-assign, assignment]
    jobs = made.run(every(0.5, 5.0), 20.0)
    assert heard == [(str(job.arrival.id), job.first_token_at) for job in jobs]
    assert picker.book.open_requests == 0


def test_pickers_share_the_arrivals_and_nothing_else() -> None:
    made = world("headrace_4", fleet(3))
    assert made.pickers is not None
    made.run(every(0.1, 30.0), 60.0)
    seen = [sum(each.picker_samples) for each in map(_Samples, made.pickers.pickers)]
    assert sum(seen) > 200
    assert all(30 < each < 130 for each in seen)
    assert len({id(picker.book) for picker in made.pickers.pickers}) == 4


@pytest.mark.parametrize("arm", ["headrace", "headrace_4", "headrace_16"])
def test_pickers_that_know_the_same_do_not_all_name_the_same(arm: str) -> None:
    """Ten requests come between two beats, to pickers that hear of each other's by beats alone. By luck
    alone a few of the eighty tens are lopsided, and what a prompt holds up, of which all know the same, makes
    a few more so."""
    made = world(arm, fleet(8))
    jobs = made.run(every(0.05, 40.0), 70.0)
    assert all(job.ok for job in jobs)
    assert max(shares(jobs).values()) < 2.0 / 8
    between = [jobs[first : first + 10] for first in range(0, len(jobs) - 9, 10)]
    most = sorted(max(shares(each).values()) for each in between)
    assert most[int(0.95 * len(most))] <= 0.6
    assert sum(most) / len(most) < 0.45


class _Samples:
    def __init__(self, picker: object) -> None:
        self.picker_samples = list(picker.known.learner.samples.values())  # type: ignore[attr-defined]


def test_a_request_of_a_dead_cell_goes_to_the_next_that_was_named() -> None:
    made = world("headrace", fleet(3))
    made.at(5.0, lambda now: [made.cells[each].die(now) for each in ("east-1",)] and None)
    jobs = made.run(every(0.05, 12.0), 60.0)
    again = [job for job in jobs if job.tried[:1] == ["east-1"] and len(job.tried) > 1]
    assert again
    assert all(job.ok and job.cell != "east-1" for job in again)
    assert made.pickers is not None
    assert made.pickers.pickers[0].book.open_requests == 0


def test_what_the_picker_does_not_name_goes_by_the_weights() -> None:
    made = world("headrace", fleet(3))
    assert made.pickers is not None
    made.pickers.pickers[0].on = False
    jobs = made.run(every(0.1, 30.0), 60.0)
    assert all(share > 0.2 for share in shares(jobs).values())
    assert isinstance(made.choosers[0], Picked)
    assert made.pickers.pick(jobs[0], 0, made.clock.now()).outcome is Outcome.OFF


@pytest.mark.parametrize(("arm", "reads"), [("headrace", False), ("headrace_prefix", True)])
def test_prompts_that_begin_alike_go_to_the_cell_that_holds_them(arm: str, reads: bool) -> None:
    """Only where the settings have it read bodies."""
    made = world(arm, fleet(4))
    heard = asks(made)
    arrivals = [
        Arrival(
            n,
            4.0 * n,
            "short",
            4200,
            4,
            prefix=tuple(range(100 * (n % 3), 100 * (n % 3) + 8)),
            prefix_block=512,
        )
        for n in range(30)
    ]
    jobs = made.run(arrivals, 150.0)
    assert any(ask.blocks for ask in heard) == reads
    cells = {kind: {job.cell for job in jobs[6:] if job.arrival.id % 3 == kind} for kind in range(3)}
    together = sum(len(each) == 1 for each in cells.values())
    assert not reads or together >= 2


def test_a_pure_prefix_hash_router_knows_no_load() -> None:
    made = world("prefix_hash", fleet(4))
    arrivals = [
        Arrival(n, 0.1 * n, "short", 2000, 4, prefix=(1, 2, 3 + n), prefix_block=512) for n in range(20)
    ]
    assert len({job.cell for job in made.run(arrivals, 100.0)}) == 1
    spread = world("prefix_hash", fleet(4)).run(every(0.1, 10.0), 60.0)
    assert len({job.cell for job in spread}) == 4
