"""Continuous batching with chunked prefill, as a pure state machine.

Whoever drives it owns the clock: `begin_step` says what is computed and for how long,
`finish_step` is called when that time has passed. A lab cell drives it in real time, a simulator
in virtual time. Randomness comes from the seed alone.
"""

from __future__ import annotations

import random
from collections import deque

from headrace_lab.engine.parameters import EngineParameters
from headrace_lab.engine.requests import ContextLengthError, Finish, FinishReason, Output, Request
from headrace_lab.engine.sequences import Chunk, Sequence, Stage, Step
from headrace_lab.engine.stats import Activity, EngineStats, Levels


class Engine:
    """One engine.

    Invariants: a submitted request is waiting, running or finished, never lost; blocks held by
    running sequences never exceed the capacity; a waiting sequence holds none. `now` must not
    go backwards from call to call.
    """

    def __init__(self, parameters: EngineParameters, seed: int = 0) -> None:
        self.parameters = parameters
        self._slowdown = 1.0
        self._random = random.Random(seed)
        self._sequences: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._free_blocks = parameters.kv_blocks
        self._under_way: Step | None = None
        self._activity = Activity()
        self._preemptions = self._prompt_tokens = self._generation_tokens = self._steps = 0

    @property
    def slowdown(self) -> float:
        """Factor on the duration of the steps to come, above 0; 4 = four times as slow."""
        return self._slowdown

    @slowdown.setter
    def slowdown(self, factor: float) -> None:
        if not 0 < factor < float("inf"):
            raise ValueError(f"slowdown is {factor}; give a number above 0")
        self._slowdown = factor

    def submit(self, request: Request, now: float) -> None:
        """Queue a request.

        Raises ContextLengthError if it cannot fit, ValueError if its id is in use.
        """
        limit = self.parameters.max_model_len
        if request.prompt_tokens + request.max_tokens > limit:
            raise ContextLengthError(request.prompt_tokens, request.max_tokens, limit)
        if request.id in self._sequences:
            raise ValueError(f"request id {request.id} is in use")
        output_tokens, stops = self._draw_length(request)
        sequence = Sequence(request, output_tokens, stops, arrived_at=now)
        self._sequences[request.id] = sequence
        self._waiting.append(sequence)

    def abort(self, request_id: str, now: float) -> Finish | None:
        """End a request and give back its blocks at once; None if it is not (or no longer) here."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return None
        if sequence.stage is Stage.WAITING:
            self._waiting.remove(sequence)
        return self._close(sequence, FinishReason.ABORT, now)

    def begin_step(self, now: float) -> Step | None:
        """Choose the next batch; None if there is nothing to do.

        Raises ValueError while another step is under way.
        """
        if self._under_way is not None:
            raise ValueError("a step is under way; finish it first")
        chunks, preempted = self._decode_chunks()
        budget = self.parameters.max_num_batched_tokens - len(chunks)
        decode_tokens = len(chunks)
        budget = self._continue_prefills(chunks, budget)
        if not preempted:
            self._admit(chunks, budget, now)
        if not chunks:
            return None
        self._under_way = self._timed(chunks, decode_tokens, now)
        return self._under_way

    def finish_step(self, step: Step, now: float) -> list[Output]:
        """Take in a step's result: at most one token for each sequence in it, in batch order.

        Raises ValueError if `step` is not the one under way.
        """
        if step is not self._under_way:
            raise ValueError("this step is not under way")
        self._under_way = None
        self._steps += 1
        self._activity.record(step.started_at, now, _levels(step))
        outputs = []
        for sequence, tokens in step.chunks:
            if sequence.stage is Stage.DONE:  # aborted while the step ran
                continue
            sequence.computed += tokens
            if sequence.pending == 0:
                outputs.append(self._emit(sequence, now))
        return outputs

    def stats(self, now: float) -> EngineStats:
        """The engine's figures at `now`."""
        if (step := self._under_way) is None:
            busy, tensor, bandwidth = self._activity.read(now)
        else:
            busy, tensor, bandwidth = self._activity.read(now, step.started_at, _levels(step))
        blocks = self.parameters.kv_blocks
        used = blocks - self._free_blocks
        return EngineStats(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_fill=used / blocks,
            kv_blocks_used=used,
            kv_blocks=blocks,
            preemptions=self._preemptions,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            steps=self._steps,
            busy=busy,
            tensor=tensor,
            bandwidth=bandwidth,
        )

    def _draw_length(self, request: Request) -> tuple[int, bool]:
        """Tokens of the answer, and whether it stops by itself on the last of them."""
        chance = self.parameters.stop_chance
        if chance > 0 and not request.ignore_eos:
            for length in range(1, request.max_tokens + 1):
                if self._random.random() < chance:
                    return length, True
        return request.max_tokens, False

    def _decode_chunks(self) -> tuple[list[Chunk], bool]:
        """One token of each decoding sequence, the oldest first; True if any was pre-empted.

        The youngest gives way when blocks run out. It stands behind the one in hand, so nothing
        already in the batch is taken back; the oldest always goes on, so the engine always does.
        """
        chunks: list[Chunk] = []
        preempted = False
        for sequence in list(self._running):
            if sequence.stage is not Stage.RUNNING or not sequence.decoding:
                continue
            while sequence.stage is Stage.RUNNING and not self._grow(sequence):
                self._preempt(self._running[-1])
                preempted = True
            if sequence.stage is Stage.RUNNING:
                chunks.append(Chunk(sequence, 1))
        return chunks, preempted

    def _continue_prefills(self, chunks: list[Chunk], budget: int) -> int:
        """Add chunks of prompts already admitted; returns the budget left."""
        for sequence in self._running:
            if budget <= 0:
                break
            if not sequence.decoding:
                tokens = min(sequence.pending, budget)
                chunks.append(Chunk(sequence, tokens))
                budget -= tokens
        return budget

    def _admit(self, chunks: list[Chunk], budget: int, now: float) -> None:
        """Admit waiting sequences in order while the batch, the budget and the cache have room."""
        while self._waiting and budget > 0 and len(self._running) < self.parameters.max_num_seqs:
            sequence = self._waiting[0]
            # Without a little room kept, what is admitted now is pre-empted by the next decode.
            spare = self.parameters.kv_blocks // 100 if self._running else 0
            if self._free_blocks - self._blocks_for(sequence) < spare or not self._grow(sequence):
                return
            self._waiting.popleft()
            self._running.append(sequence)
            sequence.stage = Stage.RUNNING
            if sequence.admitted_at is None:
                sequence.admitted_at = now
            tokens = min(sequence.pending, budget)
            chunks.append(Chunk(sequence, tokens))
            budget -= tokens

    def _timed(self, chunks: list[Chunk], decode_tokens: int, now: float) -> Step:
        p = self.parameters
        prefill_tokens = sum(chunk.tokens for chunk in chunks) - decode_tokens
        compute_s = prefill_tokens / p.prefill_tokens_per_s
        caches_s = decode_tokens * p.decode_per_sequence_s
        nominal_s = max(p.decode_base_s, compute_s) + caches_s
        noise = 1 + p.step_jitter * self._random.uniform(-1, 1)
        return Step(
            started_at=now,
            duration_s=nominal_s * noise * self._slowdown / p.speed,
            chunks=tuple(chunks),
            prefill_tokens=prefill_tokens,
            decode_tokens=decode_tokens,
            # Shares of busy cycles: a slower clock stretches the step and what happens in it alike.
            tensor=min(1.0, (compute_s + decode_tokens / p.prefill_tokens_per_s) / nominal_s),
            bandwidth=min(1.0, (p.decode_base_s + caches_s) / nominal_s),
        )

    def _emit(self, sequence: Sequence, now: float) -> Output:
        first = sequence.last_token_at is None
        since = sequence.arrived_at if sequence.last_token_at is None else sequence.last_token_at
        sequence.generated += 1
        sequence.last_token_at = now
        self._generation_tokens += 1
        if first:
            sequence.first_token_at = now
            self._prompt_tokens += sequence.request.prompt_tokens
        finish = None
        if sequence.generated == sequence.output_tokens:
            reason = FinishReason.STOP if sequence.stops else FinishReason.LENGTH
            finish = self._close(sequence, reason, now)
        return Output(sequence.request.id, sequence.generated, now - since, finish)

    def _grow(self, sequence: Sequence) -> bool:
        """Give a sequence the blocks for all its known tokens; False, and none, if there are too few."""
        more = self._blocks_for(sequence) - sequence.blocks
        if more > self._free_blocks:
            return False
        self._free_blocks -= more
        sequence.blocks += more
        return True

    def _blocks_for(self, sequence: Sequence) -> int:
        return -(-sequence.known // self.parameters.block_size)

    def _preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to the head of the queue, to be computed again from its start."""
        self._running.remove(sequence)
        self._release(sequence)
        sequence.stage = Stage.WAITING
        sequence.computed = 0
        sequence.preemptions += 1
        self._preemptions += 1
        self._waiting.appendleft(sequence)

    def _close(self, sequence: Sequence, reason: FinishReason, now: float) -> Finish:
        if sequence.stage is Stage.RUNNING:
            self._running.remove(sequence)
        self._release(sequence)
        sequence.stage = Stage.DONE
        del self._sequences[sequence.request.id]
        return sequence.finish(reason, now)

    def _release(self, sequence: Sequence) -> None:
        self._free_blocks += sequence.blocks
        sequence.blocks = 0


def _levels(step: Step) -> Levels:
    return 1.0, step.tensor, step.bandwidth
