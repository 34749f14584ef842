"""A step ends: what its sequences have of it."""

from __future__ import annotations

from headrace_lab.engine.requests import Finish, FinishReason, Output
from headrace_lab.engine.sequences import Sequence, Step
from headrace_lab.engine.state import EngineState
from headrace_lab.engine.stats import Levels


def end(state: EngineState, step: Step, now: float) -> float:
    """Note that a step is over; returns when the one before it was. Raises ValueError if `step` is not
    the one under way."""
    if step is not state.under_way:
        raise ValueError("this step is not under way")
    since = state.stepped_at
    commit(state, step, step.count, now)
    state.under_way = None
    return since


def commit(state: EngineState, step: Step, passes: int, now: float) -> None:
    """So many passes of the step under way were done at `now`."""
    state.activity.record(step.started_at, now, levels(step))
    state.stepped_at = now
    if passes > 1:
        state.free_blocks -= state.decoders.growth(1, passes - 1)
        state.prefixes.shrink(state.free_blocks)
    state.generation_tokens += passes * state.decoders.size
    state.decoders.advance(passes)


def cut(state: EngineState, step: Step, now: float) -> None:
    """End a run under way with the step that it is in at `now`."""
    done = step.done_by(now)
    if done:
        ended_at = step.started_at + step.after(done)
        commit(state, step, done, ended_at)
        state.free_blocks -= state.decoders.growth(0, 1)
        state.prefixes.shrink(state.free_blocks)
        step.first_s += done * step.grows_s
        step.started_at = ended_at
    step.count = 1


def decoded(state: EngineState, sequence: Sequence, since: float, now: float) -> Output:
    """The newest token of a decoding sequence, whose one before came with the last step, at `since`."""
    number = state.decoders.generated(sequence)
    finish = _finish(state, sequence, now) if number == sequence.output_tokens else None
    return Output(sequence.request.id, number, now - since, finish)


def prefilled(state: EngineState, sequence: Sequence, tokens: int, now: float) -> Output | None:
    """A prompt's chunk is computed; its token if that was the last one."""
    sequence.computed += tokens
    if sequence.computed < sequence.request.prompt_tokens + sequence.generated:
        return None
    state.prefilling.remove(sequence)
    state.noise = None
    since = sequence.arrived_at if sequence.last_token_at is None else sequence.last_token_at
    if sequence.first_token_at is None:
        sequence.first_token_at = now
        state.prompt_tokens += sequence.request.prompt_tokens
    if state.parameters.prefix_caching and not sequence.pinned:
        state.prefixes.pin(sequence.request.prefix)
        sequence.pinned = len(sequence.request.prefix)
    sequence.generated += 1
    state.generation_tokens += 1
    state.decoders.join(sequence)
    finish = _finish(state, sequence, now) if sequence.generated == sequence.output_tokens else None
    return Output(sequence.request.id, sequence.generated, now - since, finish)


def _finish(state: EngineState, sequence: Sequence, now: float) -> Finish:
    return state.close(sequence, FinishReason.STOP if sequence.stops else FinishReason.LENGTH, now)


def levels(step: Step) -> Levels:
    """(busy, tensor, bandwidth) while a step runs."""
    return 1.0, step.tensor, step.bandwidth
