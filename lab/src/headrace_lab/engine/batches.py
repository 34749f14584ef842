"""A step begins: who is in its batch, and how long it takes."""

from __future__ import annotations

from headrace_lab.engine.sequences import Chunk, Sequence, Stage, Step
from headrace_lab.engine.state import EngineState


def begin(state: EngineState, now: float, most: int | None) -> Step | None:
    """Choose the next batch: decode tokens first, then prompts under way, then waiting ones. `most` is
    1 for a single step, None for all that the batch will have if nothing comes. None where there is
    nothing to do. Raises ValueError while another step is under way."""
    if state.under_way is not None:
        raise ValueError("a step is under way; finish it first")
    preempted = _grow_decoders(state)
    decoders = state.decoders
    budget = state.parameters.max_num_batched_tokens - decoders.size
    chunks: list[Chunk] = []
    for sequence in state.prefilling:
        if budget <= 0:
            break
        budget = _add_chunk(chunks, sequence, budget)
    if not preempted:
        _admit(state, chunks, budget, now)
    if not chunks and not decoders.size:
        return None
    state.under_way = step = _timed(state, chunks, now)
    if not chunks and not preempted and most is None:
        step.count += decoders.room_for(decoders.until_end() - 1, state.free_blocks)
    return step


def _grow_decoders(state: EngineState) -> bool:
    """Give the decoding sequences the blocks for their next token; True if any was pre-empted.

    The youngest gives way when blocks run out; the oldest always goes on, so the engine always does.
    """
    preempted = False
    while (needed := state.decoders.growth(0, 1)) > state.free_blocks:
        state.preempt(state.running[-1])
        preempted = True
    state.free_blocks -= needed
    if needed:
        state.prefixes.shrink(state.free_blocks)
    return preempted


def _admit(state: EngineState, chunks: list[Chunk], budget: int, now: float) -> None:
    """Admit waiting sequences in order while the batch, the budget and the cache have room."""
    waiting, running, p = state.waiting, state.running, state.parameters
    while waiting and budget > 0 and len(running) < p.max_num_seqs:
        sequence = waiting[0]
        # Without a little room kept, what is admitted now is pre-empted by the next decode.
        spare = p.kv_blocks // 100 if running else 0
        blocks = state.blocks_of(sequence.request.prompt_tokens + sequence.generated)
        if state.free_blocks - blocks < spare:
            return
        waiting.popleft()
        running.append(sequence)
        state.prefilling.append(sequence)
        sequence.stage = Stage.RUNNING
        sequence.blocks = blocks
        state.free_blocks -= blocks
        _look_up(state, sequence)
        if sequence.admitted_at is None:
            sequence.admitted_at = now
        budget = _add_chunk(chunks, sequence, budget)


def _look_up(state: EngineState, sequence: Sequence) -> None:
    """Skip what the prefix cache holds of a prompt."""
    if not (state.parameters.prefix_caching and sequence.request.prefix):
        return
    sequence.computed = state.known_prefix(sequence.request)
    state.prefix_queries += sequence.request.prompt_tokens
    state.prefix_hits += sequence.computed
    state.prefixes.shrink(state.free_blocks)


def _add_chunk(chunks: list[Chunk], sequence: Sequence, budget: int) -> int:
    """Add the next chunk of a prompt; returns the budget left."""
    pending = sequence.request.prompt_tokens + sequence.generated - sequence.computed
    tokens = min(pending, budget)
    chunks.append(Chunk(sequence, tokens))
    return budget - tokens


def _timed(state: EngineState, chunks: list[Chunk], now: float) -> Step:
    p, decode_tokens = state.parameters, state.decoders.size
    prefill_tokens, compute_s = 0, 0.0
    for sequence, tokens in chunks:
        prefill_tokens += tokens
        compute_s += p.attention_per_pair_s * tokens * (sequence.computed + tokens / 2)
    compute_s += (prefill_tokens + decode_tokens) / p.prefill_tokens_per_s
    caches_s = decode_tokens * p.decode_per_sequence_s
    caches_s += state.decoders.context * p.decode_per_context_token_s
    nominal_s = max(p.decode_base_s, compute_s) + caches_s
    if state.noise is None or chunks:
        state.noise = 1 + p.step_jitter * state.random.uniform(-1, 1)
    scale = state.noise * state.slowdown / p.speed
    return Step(
        started_at=now,
        count=1,
        first_s=nominal_s * scale,
        grows_s=decode_tokens * p.decode_per_context_token_s * scale,
        chunks=tuple(chunks),
        prefill_tokens=prefill_tokens,
        decode_tokens=decode_tokens,
        # Shares of busy cycles: a slower clock stretches the step and what happens in it alike.
        tensor=min(1.0, compute_s / nominal_s),
        bandwidth=min(1.0, (p.decode_base_s + caches_s) / nominal_s),
    )
