"""The whole simulator: requests go in and come out, arms do what they stand for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace_lab.scenarios.networks import Network
from headrace_lab.sim.cells import Condition
from headrace_lab.sim.jobs import Job
from headrace_lab.sim.world import World
from tests.simulation.whole_lab.worlds import every, fleet, shares, world

ARMS = ("rr", "lr", "v3", "weights", "oracle")


@pytest.mark.parametrize("arm", ARMS)
def test_every_request_is_answered_once_with_all_its_tokens(arm: str) -> None:
    made = world(arm, fleet(3, east_2={"speed": 0.6}))
    jobs = made.run(every(0.25, 20.0), 60.0)
    assert len(jobs) == 80
    assert all(job.ok and job.attempt == 1 for job in jobs)
    assert made.gateway.outstanding == {}
    assert set(made.gateway.active.values()) == {0}
    tokens = [cell.engine.stats(made.clock.now()) for cell in made.cells.values()]
    assert sum(stats.generation_tokens for stats in tokens) == 80 * 32
    assert sum(stats.prompt_tokens for stats in tokens) == 80 * 512
    assert all(cell.coming_tokens == 0 for cell in made.cells.values())


@pytest.mark.parametrize("arm", ["rr", "lr", "weights", "oracle"])
def test_the_same_seed_gives_the_same_run(arm: str) -> None:
    def run(seed: int) -> list[tuple[str, float | None, float]]:
        jobs = world(arm, fleet(3), seed).run(every(0.3, 15.0), 40.0)
        return [(job.cell, job.ttft_s, job.ended_at) for job in jobs]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_ttft_of_an_idle_fleet_is_the_engines_and_the_paths() -> None:
    network = Network.model_validate({"paths": {"east": {"rtt_ms": 60}}})
    (job,) = world("rr", fleet(1), network=network).run(every(1.0, 1.0, prompt=512), 30.0)
    assert job.ttft_s == pytest.approx(0.060 + 512 / 1427, rel=0.03)


def test_round_robin_is_even_and_the_weights_are_not_where_cells_differ() -> None:
    plan = fleet(3, east_2={"speed": 0.5})
    even = shares(world("rr", plan).run(every(0.2, 120.0), 150.0))
    assert even == pytest.approx(dict.fromkeys(("east-1", "east-2", "east-3"), 1 / 3), abs=0.01)
    weighed = world("weights", plan)
    late = [job for job in weighed.run(every(0.2, 120.0), 150.0) if job.sent_at > weighed.origin + 60]
    assert shares(late)["east-2"] < 0.28
    assert weighed.plans[0][1] == dict.fromkeys(("east-1", "east-2", "east-3"), 100)


def test_the_oracle_is_no_worse_than_round_robin_on_unequal_cells() -> None:
    plan = fleet(3, east_2={"speed": 0.5})

    def p95(arm: str) -> float:
        jobs = world(arm, plan).run(every(0.15, 60.0), 120.0)
        return sorted(job.ttft_s or 99.0 for job in jobs)[int(0.95 * len(jobs))]

    assert p95("oracle") < 0.8 * p95("rr")


def test_what_is_too_long_is_refused_by_the_small_cell_and_classes_keep_it_away() -> None:
    plan = fleet(3, east_1={"max_model_len": 1024})
    refused = [job.status for job in world("rr", plan).run(every(1.0, 30.0, prompt=2000), 60.0)]
    assert refused.count(400) == 10
    jobs = world("weights", plan).run(every(1.0, 30.0, prompt=2000), 60.0)
    assert all(job.ok and job.cell != "east-1" for job in jobs)
    short = world("weights", plan).run(every(1.0, 30.0, prompt=200), 60.0)
    assert shares(short)["east-1"] > 0.2


def test_a_cell_that_refuses_at_random_loses_its_weight_by_what_gateways_report() -> None:
    made = world("weights", fleet(3, east_1={"refuse_share": 0.3}))
    made.run(every(0.2, 60.0, prompt=100, output=8), 70.0)
    last = made.plans[-1][1]
    assert last["east-1"] <= 5 < min(last["east-2"], last["east-3"])


def test_a_dead_engine_breaks_its_streams_and_is_avoided_by_retries() -> None:
    made = world("rr_retries", fleet(3))
    made.at(5.05, made.cells["east-1"].die)
    jobs = made.run(every(0.1, 10.0), 60.0)
    lost = [job for job in jobs if not job.ok]
    assert lost
    assert all(job.cell == "east-1" and job.sent_at < made.origin + 5.05 for job in lost)
    assert all(
        job.attempt == 2
        for job in jobs
        if job.tried[:1] == ["east-1"] and job.ok and job.sent_at > made.origin + 5.1
    )
    assert made.cells["east-1"].condition is Condition.DOWN


@pytest.mark.parametrize(("arm", "answered"), [("weights", True), ("rr", False), ("rr_retries", False)])
def test_a_stream_that_does_not_begin_is_asked_of_another_by_our_arms(arm: str, answered: bool) -> None:
    made = world(arm, fleet(3))
    made.at(5.0, made.cells["east-1"].hang)
    jobs = made.run(every(0.25, 6.0), 12.0)
    # The controller lets go of it two seconds later, gateways' health checks later still.
    after = [job for job in jobs if job.sent_at > made.origin + 5.0]
    hedged = [job for job in after if job.attempt > 1]
    assert all(job.ttft_s is not None for job in after) == answered
    assert bool(hedged) == answered
    for job in hedged:
        assert job.cell != "east-1"
        assert job.ttft_s is not None
        assert job.ttft_s > 1.0
    assert all(made.cells[name].coming_tokens == 0 for name in ("east-2", "east-3"))


def test_heat_slows_an_engine_and_pcie_contention_does() -> None:
    calm, taken = fleet(1), fleet(1, east_1={"pcie_contention": 0.5})
    (job,) = world("rr", calm).run(every(1.0, 1.0), 30.0)
    (slow,) = world("rr", taken).run(every(1.0, 1.0), 30.0)
    assert job.ttft_s is not None
    assert slow.ttft_s == pytest.approx(1.15 * job.ttft_s, rel=0.01)


def test_a_path_that_is_down_holds_requests_and_lets_them_go_on() -> None:
    network = Network.model_validate(
        {
            "paths": {"east": {"rtt_ms": 10}},
            "changes": [
                {"at_s": 2, "site": "east", "path": {"rtt_ms": 10, "down": True}},
                {"at_s": 6, "site": "east", "path": {"rtt_ms": 10}},
            ],
        }
    )
    made = world("rr", fleet(1), network=network)
    jobs = made.run(every(1.0, 8.0, output=4), 60.0)
    assert all(job.ok for job in jobs)
    held = [job for job in jobs if 2 < job.sent_at - made.origin < 6]
    assert all(job.ended_at > made.origin + 6 for job in held)


def test_a_picker_takes_the_place_of_the_balancer_and_hears_of_answers() -> None:
    heard: list[str] = []

    class Picker:
        def __init__(self, made: World) -> None:
            made.gateway.on_first_token = lambda job: heard.append(job.cell)
            self.held: dict[str, int] = {}

        def update(self, weights: Mapping[str, int], now: float) -> None:
            self.held = dict(weights)

        def choose(self, job: Job, now: float) -> str | None:
            return min(self.held, default=None)

    made = world("weights", fleet(3), chooser=lambda made, number: Picker(made))
    jobs = made.run(every(1.0, 5.0), 30.0)
    assert shares(jobs) == {"east-1": pytest.approx(1.0)}
    assert heard == ["east-1"] * 5
