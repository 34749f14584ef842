"""Going from change to change gives what going step by step gives."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_lab.engine import Engine, EngineParameters, EngineStats, Output, Request

FAR = 1e9


@dataclass
class Arrival:
    at: float
    request: Request
    abort_after: float | None = None


@dataclass
class Seen:
    """What a run showed: tokens by request and number, ends, figures at set moments."""

    first: dict[str, float] = field(default_factory=dict)
    ended: dict[str, tuple[float, int, int, str]] = field(default_factory=dict)
    stats: list[EngineStats] = field(default_factory=list)

    def take(self, outputs: list[Output], now: float) -> None:
        for output in outputs:
            if output.number == 1:
                self.first[output.request_id] = now
            if output.finish is not None:
                finish = output.finish
                self.ended[output.request_id] = (
                    now,
                    finish.generated_tokens,
                    finish.preemptions,
                    finish.reason.value,
                )


def play(engine: Engine, arrivals: list[Arrival], looks: list[float], runs: bool) -> Seen:
    """Drive an engine through arrivals, aborts and looks, by steps or by runs."""
    seen = Seen()
    events = [(a.at, 0, n, a) for n, a in enumerate(arrivals)]
    events += [(a.at + a.abort_after, 1, n, a) for n, a in enumerate(arrivals) if a.abort_after is not None]
    events += [(at, 2, n, None) for n, at in enumerate(looks)]
    events.sort(key=lambda event: event[:3])
    step, now = None, 0.0
    begin = engine.begin_run if runs else engine.begin_step
    for _ in range(200_000):
        due = FAR if step is None else (engine.due or FAR)
        at = events[0][0] if events else FAR
        if min(due, at) == FAR:
            return seen
        now = min(due, at)
        if due <= at:
            assert step is not None
            seen.take(engine.finish_run(step, now) if runs else engine.finish_step(step, now), now)
            step = begin(now)
            continue
        _, kind, _, arrival = events.pop(0)
        if kind == 2:
            seen.stats.append(engine.stats(now))
        elif kind == 1:
            engine.abort(arrival.request.id, now)
        else:
            if not engine.has_queue:
                engine.cut(now)
            engine.submit(arrival.request, now)
            if step is None:
                step = begin(now)
    raise AssertionError("the engine does not come to rest")


parameters = st.builds(
    EngineParameters,
    prefill_tokens_per_s=st.just(2000.0),
    decode_per_context_token_s=st.sampled_from([0.0, 1e-5]),
    attention_per_pair_s=st.sampled_from([0.0, 1e-6]),
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(6, 80),
    kv_capacity_tokens=st.integers(130, 400),
    block_size=st.sampled_from([1, 4, 16]),
    max_model_len=st.just(112),
    prefix_caching=st.booleans(),
    prefix_block_tokens=st.just(16),
    stop_chance=st.sampled_from([0.0, 0.1]),
)
arrivals = st.lists(
    st.tuples(
        st.floats(0, 3),
        st.integers(17, 80),
        st.integers(1, 32),
        st.sampled_from([(), (1,), (1, 2), (3,)]),
        st.none() | st.none() | st.floats(0.001, 1),
    ),
    max_size=14,
)


@settings(max_examples=200, deadline=None)
@given(parameters, arrivals, st.lists(st.floats(0, 5), max_size=6), st.integers(0, 3))
def test_runs_and_steps_agree(
    parameters: EngineParameters,
    plan: list[tuple[float, int, int, tuple[int, ...], float | None]],
    looks: list[float],
    seed: int,
) -> None:
    todo = [
        Arrival(at, Request(f"r{n}", prompt, output, prefix=prefix[: prompt // 16]), abort)
        for n, (at, prompt, output, prefix, abort) in enumerate(plan)
    ]
    by_steps = play(Engine(parameters, seed), todo, looks, runs=False)
    by_runs = play(Engine(parameters, seed), todo, looks, runs=True)
    assert by_runs.first == pytest.approx(by_steps.first)
    assert by_runs.ended.keys() == by_steps.ended.keys()
    for name, (at, *rest) in by_steps.ended.items():
        assert by_runs.ended[name][0] == pytest.approx(at)
        assert list(by_runs.ended[name][1:]) == rest
    for one, other in zip(by_runs.stats, by_steps.stats, strict=True):
        for figure in ("running", "waiting", "kv_blocks_used", "preemptions", "generation_tokens", "steps"):
            assert getattr(one, figure) == getattr(other, figure), figure
        assert one.busy == pytest.approx(other.busy, abs=1e-6)


def test_a_run_is_as_long_as_its_batch_and_counts_each_token_once() -> None:
    engine = Engine(EngineParameters(step_jitter=0.0, decode_per_context_token_s=1e-6))
    engine.submit(Request("a", 100, 50), 0.0)
    step = engine.begin_run(0.0)
    assert step is not None
    (first,) = engine.finish_run(step, step.duration_s)
    assert (first.number, first.finish) == (1, None)
    run = engine.begin_run(step.duration_s)
    assert run is not None
    assert run.count == 49
    contexts = sum(101 + number for number in range(49))
    assert run.duration_s == pytest.approx(49 * 0.0202 + contexts * 1e-6)
    (last,) = engine.finish_run(run, step.duration_s + run.duration_s)
    assert last.finish is not None
    assert engine.stats(10.0).generation_tokens == 50


def test_a_cut_run_ends_with_the_step_under_way() -> None:
    engine = Engine(EngineParameters(step_jitter=0.0))
    engine.submit(Request("a", 1, 50), 0.0)
    now = 0.0
    for _ in range(2):
        step = engine.begin_run(now)
        assert step is not None
        if step.count == 1:
            now += step.duration_s
            engine.finish_run(step, now)
    engine.cut(now + 10.5 * 0.0202)
    assert engine.due == pytest.approx(now + 11 * 0.0202)
    due = now + 11 * 0.0202
    assert engine.finish_run(step, due) == []
    assert engine.stats(due).generation_tokens == 12


def test_what_is_known_of_a_prompt_is_not_computed_again() -> None:
    engine = Engine(EngineParameters(step_jitter=0.0, prefix_caching=True))

    def ttft(name: str, prefix: tuple[int, ...], at: float) -> float:
        engine.submit(Request(name, 4096, 1, prefix=prefix), at)
        now = at
        while (step := engine.begin_run(now)) is not None:
            now += step.duration_s
            engine.finish_run(step, now)
        return now - at

    cold = ttft("cold", (1, 2, 3, 4), 0.0)
    assert ttft("other", (9, 2, 3, 4), 10.0) == pytest.approx(cold)
    assert ttft("half", (1, 2, 7, 8), 20.0) == pytest.approx(0.75 * cold)
    whole = ttft("whole", (1, 2, 3, 4, 5, 6, 7, 8), 30.0)
    assert whole == pytest.approx(cold / 2)
    stats = engine.stats(40.0)
    assert (stats.prefix_queries, stats.prefix_hits) == (4 * 4096, 1024 + 2048)
    assert stats.kv_blocks_used == 0


def test_a_prefix_goes_when_its_room_is_needed() -> None:
    engine = Engine(
        EngineParameters(
            step_jitter=0.0,
            prefix_caching=True,
            prefix_block_tokens=16,
            kv_capacity_tokens=64,
            max_model_len=64,
            max_num_seqs=4,
        )
    )
    now = 0.0
    for name, prefix in (("a", (1, 2)), ("b", (7, 8, 9)), ("a again", (1, 2))):
        engine.submit(Request(name, 16 * len(prefix) + 1, 1, prefix=prefix), now)
        while (step := engine.begin_run(now)) is not None:
            now += step.duration_s
            engine.finish_run(step, now)
    assert engine.stats(now).prefix_hits == 0
