"""The engine model, by example."""

from __future__ import annotations

import pytest

from headrace_lab.engine import (
    ContextLengthError,
    Engine,
    EngineParameters,
    FinishReason,
    Output,
    Request,
)

QUIET = EngineParameters(step_jitter=0.0)


def drain(engine: Engine, now: float = 0.0, steps: int = 100_000) -> tuple[list[Output], float]:
    """Run until idle; returns all outputs and the time then."""
    outputs: list[Output] = []
    for _ in range(steps):
        step = engine.begin_step(now)
        if step is None:
            return outputs, now
        now += step.duration_s
        outputs += engine.finish_step(step, now)
    raise AssertionError("the engine did not come to rest")


def test_one_request_has_its_prefill_then_a_token_a_step() -> None:
    engine = Engine(QUIET)
    engine.submit(Request("a", prompt_tokens=1600, max_tokens=3), now=0.0)
    outputs, _ = drain(engine)
    assert [o.number for o in outputs] == [1, 2, 3]
    assert outputs[0].latency_s == pytest.approx(1600 / 16_000)
    assert outputs[1].latency_s == pytest.approx(0.0202)
    finish = outputs[2].finish
    assert finish is not None
    assert finish.reason is FinishReason.LENGTH
    assert finish.e2e_s == pytest.approx(0.1 + 2 * 0.0202)
    assert finish.queue_s == 0.0
    assert finish.prefill_s == pytest.approx(0.1)
    assert [o.finish for o in outputs[:2]] == [None, None]


def test_decode_tokens_go_before_prompt_chunks_and_the_budget_holds() -> None:
    engine = Engine(EngineParameters(max_num_seqs=8, max_num_batched_tokens=100))
    engine.submit(Request("short", 10, 50), 0.0)
    step = engine.begin_step(0.0)
    assert step is not None
    engine.finish_step(step, 0.02)
    engine.submit(Request("long", 1000, 5), 0.02)
    step = engine.begin_step(0.02)
    assert step is not None
    assert [(c.sequence.request.id, c.tokens) for c in step.chunks] == [("short", 1), ("long", 99)]
    assert (step.decode_tokens, step.prefill_tokens) == (1, 99)


def test_admission_is_first_come_first_served_even_if_a_later_one_would_fit() -> None:
    engine = Engine(EngineParameters(kv_capacity_tokens=320, max_model_len=320, max_num_batched_tokens=512))
    for name, size in (("first", 200), ("large", 200), ("small", 16)):
        engine.submit(Request(name, size, 2), 0.0)
    step = engine.begin_step(0.0)
    assert step is not None
    assert [c.sequence.request.id for c in step.chunks] == ["first"]
    assert engine.stats(0.0).waiting == 2


def test_the_youngest_is_pre_empted_and_still_answers_in_full() -> None:
    engine = Engine(
        EngineParameters(
            kv_capacity_tokens=160, max_model_len=160, max_num_seqs=4, max_num_batched_tokens=256
        )
    )
    engine.submit(Request("old", 64, 60), 0.0)
    engine.submit(Request("young", 64, 60), 0.0)
    outputs, now = drain(engine)
    finishes = {o.request_id: o.finish for o in outputs if o.finish is not None}
    assert engine.stats(now).preemptions >= 1
    assert finishes["old"].preemptions == 0
    assert finishes["young"].preemptions >= 1
    assert [o.number for o in outputs if o.request_id == "young"] == list(range(1, 61))
    assert engine.stats(now).prompt_tokens == 128, "a prompt computed twice is counted once"


def test_what_cannot_fit_is_refused_and_counts_nothing() -> None:
    engine = Engine(QUIET)
    with pytest.raises(ContextLengthError) as error:
        engine.submit(Request("a", 8190, 3), 0.0)
    assert (error.value.prompt_tokens, error.value.max_tokens, error.value.limit) == (8190, 3, 8192)
    assert engine.begin_step(0.0) is None
    engine.submit(Request("a", 8190, 2), 0.0)


def test_an_abort_in_the_middle_of_a_step_frees_the_cache_and_yields_no_token() -> None:
    engine = Engine(QUIET)
    engine.submit(Request("a", 100, 10), 0.0)
    step = engine.begin_step(0.0)
    assert step is not None
    assert engine.stats(0.0).kv_fill > 0
    finish = engine.abort("a", 0.01)
    assert finish is not None
    assert (finish.reason, finish.generated_tokens, finish.prefill_s) == (FinishReason.ABORT, 0, None)
    assert engine.stats(0.01).kv_blocks_used == 0
    assert engine.finish_step(step, 0.02) == []
    assert engine.abort("a", 0.03) is None


def test_ids_are_unique_while_in_use_and_free_afterwards() -> None:
    engine = Engine(QUIET)
    engine.submit(Request("a", 1, 1), 0.0)
    with pytest.raises(ValueError, match="in use"):
        engine.submit(Request("a", 1, 1), 0.0)
    drain(engine)
    engine.submit(Request("a", 1, 1), 1.0)


def test_steps_do_not_overlap_and_foreign_steps_are_refused() -> None:
    engine, other = Engine(QUIET), Engine(QUIET)
    for each in (engine, other):
        each.submit(Request("a", 1, 5), 0.0)
    step = engine.begin_step(0.0)
    assert step is not None
    with pytest.raises(ValueError, match="under way"):
        engine.begin_step(0.0)
    with pytest.raises(ValueError, match="not under way"):
        other.finish_step(step, 0.1)


def test_slowdown_and_speed_stretch_steps() -> None:
    def first_step(parameters: EngineParameters, slowdown: float) -> float:
        engine = Engine(parameters)
        engine.slowdown = slowdown
        engine.submit(Request("a", 1, 5), 0.0)
        step = engine.begin_step(0.0)
        assert step is not None
        return step.duration_s

    assert first_step(QUIET, 4.0) == pytest.approx(4 * first_step(QUIET, 1.0))
    half = EngineParameters(step_jitter=0.0, speed=0.5)
    assert first_step(half, 1.0) == pytest.approx(2 * first_step(QUIET, 1.0))
    with pytest.raises(ValueError):
        Engine(QUIET).slowdown = 0.0


def test_activity_tells_prefill_from_decode_and_falls_when_idle() -> None:
    engine = Engine(EngineParameters(step_jitter=0.0, max_model_len=60_000))
    engine.submit(Request("a", 50_000, 1), 0.0)
    _, now = drain(engine)
    prefill = engine.stats(now)
    assert prefill.busy > 0.95
    assert prefill.tensor > 0.95
    assert prefill.bandwidth < 0.3
    engine.submit(Request("b", 1, 200), now)
    _, now = drain(engine, now)
    decode = engine.stats(now)
    assert decode.busy > 0.95
    assert decode.tensor < 0.1
    assert decode.bandwidth > 0.9
    assert engine.stats(now + 5).busy < 0.001


def test_activity_counts_the_step_under_way() -> None:
    engine = Engine(QUIET)
    engine.submit(Request("a", 8000, 1), 0.0)
    engine.slowdown = 50.0
    engine.begin_step(0.0)
    assert engine.stats(3.0).busy > 0.95


def test_answers_stop_early_by_chance_unless_told_to_run_on() -> None:
    engine = Engine(EngineParameters(stop_chance=0.2), seed=7)
    for i in range(50):
        engine.submit(Request(f"eos-{i}", 1, 100), 0.0)
    engine.submit(Request("full", 1, 100, ignore_eos=True), 0.0)
    outputs, _ = drain(engine)
    lengths = {o.request_id: o.finish for o in outputs if o.finish is not None}
    assert lengths["full"].generated_tokens == 100
    assert lengths["full"].reason is FinishReason.LENGTH
    stops = [f for f in lengths.values() if f.reason is FinishReason.STOP]
    assert len(stops) == 50
    assert 3 < sum(f.generated_tokens for f in stops) / 50 < 8


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[Output]:
        engine = Engine(EngineParameters(stop_chance=0.05), seed)
        for i in range(20):
            engine.submit(Request(str(i), 100, 30), 0.0)
        return drain(engine)[0]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_parameters_name_all_that_is_wrong() -> None:
    with pytest.raises(ValueError) as error:
        EngineParameters(speed=0, max_model_len=100_000, step_jitter=1.0)
    for name in ("speed", "kv_capacity_tokens", "step_jitter"):
        assert name in str(error.value)


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0)])
def test_empty_requests_do_not_exist(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Request("a", prompt, output)
