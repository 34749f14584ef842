"""What holds of the engine model whatever arrives, and whenever."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_lab.engine import Engine, EngineParameters, FinishReason, Output, Request

parameters = st.builds(
    EngineParameters,
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(6, 80),
    kv_capacity_tokens=st.integers(130, 400),
    block_size=st.sampled_from([1, 4, 16]),
    max_model_len=st.just(112),
    stop_chance=st.sampled_from([0.0, 0.1]),
)


@dataclass(frozen=True)
class Act:
    """At the given step, submit a request of this size, or abort the n-th one so far."""

    step: int
    prompt: int
    output: int
    abort: int | None


acts = st.lists(
    st.builds(
        Act,
        step=st.integers(0, 60),
        prompt=st.integers(1, 80),
        output=st.integers(1, 32),
        abort=st.none() | st.none() | st.integers(0, 10),
    ),
    max_size=25,
)


class Run:
    """Plays acts against an engine and checks the invariants at every step."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now = 0.0
        self.outputs: list[Output] = []
        self.submitted: dict[str, Request] = {}
        self.aborted: dict[str, int] = {}
        self.computed: Counter[str] = Counter()

    def play(self, plan: list[Act]) -> None:
        plan = sorted(plan, key=lambda act: act.step)
        for number in range(20_000):
            while plan and plan[0].step <= number:
                self.act(plan.pop(0))
            if not self.step() and not plan:
                return
        raise AssertionError("the engine does not come to rest")

    def act(self, act: Act) -> None:
        if act.abort is None:
            request = Request(f"r{len(self.submitted)}", act.prompt, act.output)
            self.submitted[request.id] = request
            self.engine.submit(request, self.now)
        elif (finish := self.engine.abort(f"r{act.abort}", self.now)) is not None:
            assert finish.reason is FinishReason.ABORT
            self.aborted[f"r{act.abort}"] = finish.generated_tokens
        self.check()

    def step(self) -> bool:
        step = self.engine.begin_step(self.now)
        self.check()
        if step is None:
            return False
        budget = self.engine.parameters.max_num_batched_tokens
        assert step.decode_tokens + step.prefill_tokens == sum(c.tokens for c in step.chunks) <= budget
        assert len({c.sequence.request.id for c in step.chunks}) == len(step.chunks)
        self.now += step.duration_s
        for chunk in step.chunks:
            self.computed[chunk.sequence.request.id] += chunk.tokens
        self.outputs += self.engine.finish_step(step, self.now)
        self.check()
        return True

    def check(self) -> None:
        stats = self.engine.stats(self.now)
        ended = {o.request_id for o in self.outputs if o.finish is not None} | set(self.aborted)
        assert stats.running + stats.waiting == len(self.submitted) - len(ended), "a request was lost"
        assert 0 <= stats.kv_blocks_used <= stats.kv_blocks
        assert 0 <= stats.kv_fill <= 1
        assert stats.running <= self.engine.parameters.max_num_seqs
        assert stats.generation_tokens == len(self.outputs)
        for level in (stats.busy, stats.tensor, stats.bandwidth):
            assert 0 <= level <= 1


@settings(max_examples=150, deadline=None)
@given(parameters, acts, st.integers(0, 3))
def test_every_request_ends_once_with_all_its_tokens_and_the_cache_empty(
    parameters: EngineParameters, plan: list[Act], seed: int
) -> None:
    run = Run(Engine(parameters, seed))
    run.play(plan)
    stats = run.engine.stats(run.now)
    assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, 0)

    tokens: dict[str, list[int]] = {}
    for output in run.outputs:
        tokens.setdefault(output.request_id, []).append(output.number)
    for indexes in tokens.values():
        assert indexes == list(range(1, len(indexes) + 1)), "tokens come in order, each once"
    finishes = [(o.request_id, o.finish) for o in run.outputs if o.finish is not None]
    assert len({name for name, _ in finishes}) == len(finishes)
    for name, finish in finishes:
        request = run.submitted[name]
        assert finish.generated_tokens == len(tokens[name]) <= request.max_tokens
        if finish.reason is FinishReason.LENGTH:
            assert finish.generated_tokens == request.max_tokens
        assert finish.queue_s is not None
        assert finish.prefill_s is not None
        assert finish.decode_s is not None
        assert abs(finish.queue_s + finish.prefill_s + finish.decode_s - finish.e2e_s) < 1e-9
        # What was computed is the prompt and every token but the last, and more only if pre-empted.
        least = request.prompt_tokens + finish.generated_tokens - 1
        if finish.preemptions:
            assert run.computed[name] > least
        else:
            assert run.computed[name] == least
    for name, generated in run.aborted.items():
        assert generated == len(tokens.get(name, []))
    started = {name for name, indexes in tokens.items() if indexes}
    assert stats.prompt_tokens == sum(run.submitted[name].prompt_tokens for name in started)


@settings(max_examples=40, deadline=None)
@given(st.integers(112, 150), st.lists(st.integers(20, 80), min_size=4, max_size=8))
def test_under_cache_pressure_what_was_pre_empted_is_computed_again(
    capacity: int, prompts: list[int]
) -> None:
    run = Run(
        Engine(
            EngineParameters(
                max_num_seqs=4,
                max_num_batched_tokens=64,
                kv_capacity_tokens=capacity,
                block_size=1,
                max_model_len=112,
            )
        )
    )
    run.play([Act(0, prompt, 32, None) for prompt in prompts])
    again = 0
    for output in run.outputs:
        if output.finish is not None:
            least = run.submitted[output.request_id].prompt_tokens + 31
            again += output.finish.preemptions
            assert (run.computed[output.request_id] > least) == (output.finish.preemptions > 0)
    assert again == run.engine.stats(run.now).preemptions


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 20), st.integers(100, 3000))
def test_ttft_grows_with_the_queue_in_front(ahead: int, more: int, prompt: int) -> None:
    def last_ttft(queue: int) -> float:
        engine = Engine(EngineParameters(step_jitter=0.0))
        for i in range(queue):
            engine.submit(Request(f"ahead-{i}", prompt, 8), 0.0)
        engine.submit(Request("last", prompt, 8), 0.0)
        now = 0.0
        for _ in range(10_000):
            step = engine.begin_step(now)
            assert step is not None
            now += step.duration_s
            for output in engine.finish_step(step, now):
                if output.request_id == "last" and output.number == 1:
                    return output.latency_s
        raise AssertionError("no first token")

    assert last_ttft(ahead + more) >= last_ttft(ahead)
    work = (ahead + 1) * prompt / 16_000
    assert last_ttft(ahead) >= work * 0.999


@settings(max_examples=60, deadline=None)
@given(parameters, st.lists(st.integers(1, 80), min_size=1, max_size=12), st.integers(0, 30), st.randoms())
def test_aborting_everything_frees_the_cache(
    parameters: EngineParameters, prompts: list[int], steps: int, order: object
) -> None:
    engine = Engine(parameters)
    names = [f"r{i}" for i in range(len(prompts))]
    for name, prompt in zip(names, prompts, strict=True):
        engine.submit(Request(name, prompt, 32), 0.0)
    now = 0.0
    for _ in range(steps):
        if (step := engine.begin_step(now)) is None:
            break
        now += step.duration_s
        engine.finish_step(step, now)
    order.shuffle(names)  # type: ignore[attr-defined]
    for name in names:
        engine.abort(name, now)
    stats = engine.stats(now)
    assert (stats.running, stats.waiting, stats.kv_blocks_used) == (0, 0, 0)
    assert engine.begin_step(now) is None
