"""Continuous batching with chunked prefill, as a pure state machine.

Whoever drives it owns the clock. A lab cell, in real time, goes step by step: `begin_step` says what is
computed and for how long, `finish_step` is called when that time has passed. A simulator, in virtual
time, goes from change to change: `begin_run` begins as many steps as one batch will have if nothing
comes, and `cut` ends such a run with the step under way, for a request that has come. Both give the same
tokens at the same times. Randomness comes from the seed alone.
"""

from __future__ import annotations

import random
from collections import deque

from headrace_lab.engine.decoders import Decoders
from headrace_lab.engine.outlook import Outlook
from headrace_lab.engine.parameters import EngineParameters
from headrace_lab.engine.prefixes import PrefixCache
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
        self._prefilling: list[Sequence] = []
        self._decoders = Decoders(parameters.block_size)
        self._prefixes = PrefixCache(parameters.prefix_block_tokens // parameters.block_size)
        self._free_blocks = parameters.kv_blocks
        self._under_way: Step | None = None
        self._activity = Activity()
        self._stepped_at = 0.0
        self._noise: float | None = None
        self._preemptions = self._prompt_tokens = self._generation_tokens = 0
        self._prefix_queries = self._prefix_hits = 0

    @property
    def slowdown(self) -> float:
        """Factor on the duration of the steps to come, above 0; 4 = four times as slow."""
        return self._slowdown

    @slowdown.setter
    def slowdown(self, factor: float) -> None:
        if not 0 < factor < float("inf"):
            raise ValueError(f"slowdown is {factor}; give a number above 0")
        self._slowdown = factor

    @property
    def due(self) -> float | None:
        """When the step or run under way is done; None while nothing is."""
        step = self._under_way
        return None if step is None else step.started_at + step.duration_s

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
        """End a request and give back its blocks at once; None if it is not (or no longer) here.

        A run under way is cut: ask for `due` again.
        """
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return None
        self.cut(now)
        if sequence.stage is Stage.WAITING:
            self._waiting.remove(sequence)
        return self._close(sequence, FinishReason.ABORT, now)

    def begin_step(self, now: float) -> Step | None:
        """Choose the next batch; None if there is nothing to do.

        Raises ValueError while another step is under way.
        """
        step = self._begin(now, most=1)
        if step is not None:
            decoding = (Chunk(each, 1) for each in self._running if each.decoding)
            step.chunks = (*decoding, *step.chunks)
        return step

    def begin_run(self, now: float) -> Step | None:
        """Choose the next batch and all the steps that it will have if nothing comes; None if there is
        nothing to do. Raises ValueError while another step is under way."""
        return self._begin(now, most=None)

    def cut(self, now: float) -> None:
        """End the run under way, if there is one, with the step that it is in at `now`."""
        step = self._under_way
        if step is None or step.count == 1:
            return
        done = step.done_by(now)
        if done:
            ended_at = step.started_at + step.after(done)
            self._commit(step, done, ended_at)
            self._free_blocks -= self._decoders.growth(0, 1)
            self._prefixes.shrink(self._free_blocks)
            step.first_s += done * step.grows_s
            step.started_at = ended_at
        step.count = 1

    def finish_step(self, step: Step, now: float) -> list[Output]:
        """Take in a step's result: at most one token for each sequence in it, in batch order.

        Raises ValueError if `step` is not the one under way.
        """
        since = self._end(step, now)
        outputs = []
        for sequence, tokens in step.chunks:
            if sequence.stage is Stage.DONE:  # aborted while the step ran
                continue
            if sequence.decoding:
                outputs.append(self._decoded(sequence, since, now))
            elif (output := self._prefilled(sequence, tokens, now)) is not None:
                outputs.append(output)
        self._decoders.ended()
        return outputs

    def finish_run(self, step: Step, now: float) -> list[Output]:
        """Take in a run's result. Of its tokens only those are given that begin an answer, go on with
        one after it was pre-empted, or end one.

        Raises ValueError if `step` is not the one under way.
        """
        since = self._end(step, now)
        outputs = [self._decoded(sequence, since, now) for sequence in self._decoders.ended()]
        for sequence, tokens in step.chunks:
            if sequence.stage is Stage.DONE:
                continue
            if (output := self._prefilled(sequence, tokens, now)) is not None:
                outputs.append(output)
        return outputs

    def stats(self, now: float) -> EngineStats:
        """The engine's figures at `now`."""
        done = ahead = 0
        if (step := self._under_way) is None:
            busy, tensor, bandwidth = self._activity.read(now)
        else:
            busy, tensor, bandwidth = self._activity.read(now, step.started_at, _levels(step))
            done = step.done_by(now)
            ahead = self._decoders.growth(1, done)
        blocks = self.parameters.kv_blocks
        used = blocks - self._free_blocks + ahead
        return EngineStats(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_fill=used / blocks,
            kv_blocks_used=used,
            kv_blocks=blocks,
            preemptions=self._preemptions,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens + done * self._decoders.size,
            steps=self._decoders.passes + done,
            busy=busy,
            tensor=tensor,
            bandwidth=bandwidth,
            prefix_queries=self._prefix_queries,
            prefix_hits=self._prefix_hits,
        )

    @property
    def has_queue(self) -> bool:
        """Whether a request that came now would wait behind others."""
        return bool(self._waiting)

    def predict_ttft(self, request: Request, now: float, ahead: int = 0) -> float:
        """Seconds until a request that came now would have its first token, were nothing else to come;
        `ahead` are prompt tokens that will be here before it. Exact where one step follows the other
        without a change of the batch, and a good estimate elsewhere. Changes nothing."""
        p, step = self.parameters, self._under_way
        passes_of = Outlook(p, self._slowdown, self._decoders)
        wait_s, in_step = 0.0, 0
        if step is not None:
            done = step.done_by(now)
            wait_s = max(0.0, step.started_at + step.after(done + 1) - now)
            in_step = step.prefill_tokens
        own = request.prompt_tokens - self._known_prefix(request)
        tokens, pairs = own + ahead - in_step, own * (request.prompt_tokens - own / 2)
        for sequence in (*self._prefilling, *self._waiting):
            left = sequence.request.prompt_tokens + sequence.generated - sequence.computed
            tokens += left
            pairs += left * (sequence.computed + left / 2)
        blocked_s = 0.0
        blocks = sum(self._blocks_of(each.request.prompt_tokens + each.generated) for each in self._waiting)
        blocks += self._blocks_of(request.prompt_tokens + ahead)
        seats = len(self._running) + len(self._waiting) + 1
        if blocks > self._free_blocks or seats > p.max_num_seqs:
            blocked_s = passes_of.until_room(blocks - self._free_blocks, seats - p.max_num_seqs)
        return wait_s + max(blocked_s, passes_of.prefill_s(max(1, tokens), pairs))

    def _known_prefix(self, request: Request) -> int:
        p = self.parameters
        if not (p.prefix_caching and request.prefix):
            return 0
        return min(request.prompt_tokens - 1, self._prefixes.hits(request.prefix) * p.prefix_block_tokens)

    def _draw_length(self, request: Request) -> tuple[int, bool]:
        """Tokens of the answer, and whether it stops by itself on the last of them."""
        chance = self.parameters.stop_chance
        if chance > 0 and not request.ignore_eos:
            for length in range(1, request.max_tokens + 1):
                if self._random.random() < chance:
                    return length, True
        return request.max_tokens, False

    # A step begins.

    def _begin(self, now: float, most: int | None) -> Step | None:
        if self._under_way is not None:
            raise ValueError("a step is under way; finish it first")
        preempted = self._grow_decoders()
        budget = self.parameters.max_num_batched_tokens - self._decoders.size
        chunks: list[Chunk] = []
        for sequence in self._prefilling:
            if budget <= 0:
                break
            budget = self._add_chunk(chunks, sequence, budget)
        if not preempted:
            self._admit(chunks, budget, now)
        if not chunks and not self._decoders.size:
            return None
        self._under_way = step = self._timed(chunks, now)
        if not chunks and not preempted and most is None:
            until_end = self._decoders.until_end() - 1
            step.count += self._decoders.room_for(until_end, self._free_blocks)
        return step

    def _grow_decoders(self) -> bool:
        """Give the decoding sequences the blocks for their next token; True if any was pre-empted.

        The youngest gives way when blocks run out; the oldest always goes on, so the engine always does.
        """
        preempted = False
        while (needed := self._decoders.growth(0, 1)) > self._free_blocks:
            self._preempt(self._running[-1])
            preempted = True
        self._free_blocks -= needed
        if needed:
            self._prefixes.shrink(self._free_blocks)
        return preempted

    def _admit(self, chunks: list[Chunk], budget: int, now: float) -> None:
        """Admit waiting sequences in order while the batch, the budget and the cache have room."""
        while self._waiting and budget > 0 and len(self._running) < self.parameters.max_num_seqs:
            sequence = self._waiting[0]
            # Without a little room kept, what is admitted now is pre-empted by the next decode.
            spare = self.parameters.kv_blocks // 100 if self._running else 0
            blocks = self._blocks_of(sequence.request.prompt_tokens + sequence.generated)
            if self._free_blocks - blocks < spare:
                return
            self._waiting.popleft()
            self._running.append(sequence)
            self._prefilling.append(sequence)
            sequence.stage = Stage.RUNNING
            sequence.blocks = blocks
            self._free_blocks -= blocks
            self._look_up(sequence)
            if sequence.admitted_at is None:
                sequence.admitted_at = now
            budget = self._add_chunk(chunks, sequence, budget)

    def _look_up(self, sequence: Sequence) -> None:
        """Skip what the prefix cache holds of a prompt; its last token is computed in any case."""
        if not (self.parameters.prefix_caching and sequence.request.prefix):
            return
        sequence.computed = self._known_prefix(sequence.request)
        self._prefix_queries += sequence.request.prompt_tokens
        self._prefix_hits += sequence.computed
        self._prefixes.shrink(self._free_blocks)

    def _add_chunk(self, chunks: list[Chunk], sequence: Sequence, budget: int) -> int:
        """Add the next chunk of a prompt; returns the budget left."""
        pending = sequence.request.prompt_tokens + sequence.generated - sequence.computed
        tokens = min(pending, budget)
        chunks.append(Chunk(sequence, tokens))
        return budget - tokens

    def _timed(self, chunks: list[Chunk], now: float) -> Step:
        p, decode_tokens = self.parameters, self._decoders.size
        prefill_tokens, compute_s = 0, 0.0
        for sequence, tokens in chunks:
            prefill_tokens += tokens
            compute_s += p.attention_per_pair_s * tokens * (sequence.computed + tokens / 2)
        compute_s += (prefill_tokens + decode_tokens) / p.prefill_tokens_per_s
        caches_s = decode_tokens * p.decode_per_sequence_s
        caches_s += self._decoders.context * p.decode_per_context_token_s
        nominal_s = max(p.decode_base_s, compute_s) + caches_s
        if self._noise is None or chunks:
            self._noise = 1 + p.step_jitter * self._random.uniform(-1, 1)
        scale = self._noise * self._slowdown / p.speed
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

    # A step ends.

    def _end(self, step: Step, now: float) -> float:
        """Note that a step is over; returns when the one before it was."""
        if step is not self._under_way:
            raise ValueError("this step is not under way")
        since = self._stepped_at
        self._commit(step, step.count, now)
        self._under_way = None
        return since

    def _commit(self, step: Step, passes: int, now: float) -> None:
        """So many passes of the step under way were done at `now`."""
        self._activity.record(step.started_at, now, _levels(step))
        self._stepped_at = now
        if passes > 1:
            self._free_blocks -= self._decoders.growth(1, passes - 1)
            self._prefixes.shrink(self._free_blocks)
        self._generation_tokens += passes * self._decoders.size
        self._decoders.advance(passes)

    def _decoded(self, sequence: Sequence, since: float, now: float) -> Output:
        """The newest token of a decoding sequence, whose one before came with the last step."""
        number = self._decoders.generated(sequence)
        finish = self._finish(sequence, now) if number == sequence.output_tokens else None
        return Output(sequence.request.id, number, now - since, finish)

    def _prefilled(self, sequence: Sequence, tokens: int, now: float) -> Output | None:
        """A prompt's chunk is computed; its token if that was the last one."""
        sequence.computed += tokens
        if sequence.computed < sequence.request.prompt_tokens + sequence.generated:
            return None
        self._prefilling.remove(sequence)
        self._noise = None
        since = sequence.arrived_at if sequence.last_token_at is None else sequence.last_token_at
        if sequence.first_token_at is None:
            sequence.first_token_at = now
            self._prompt_tokens += sequence.request.prompt_tokens
        if self.parameters.prefix_caching and not sequence.pinned:
            self._prefixes.pin(sequence.request.prefix)
            sequence.pinned = len(sequence.request.prefix)
        sequence.generated += 1
        self._generation_tokens += 1
        self._decoders.join(sequence)
        finish = self._finish(sequence, now) if sequence.generated == sequence.output_tokens else None
        return Output(sequence.request.id, sequence.generated, now - since, finish)

    def _finish(self, sequence: Sequence, now: float) -> Finish:
        return self._close(sequence, FinishReason.STOP if sequence.stops else FinishReason.LENGTH, now)

    def _blocks_of(self, known: int) -> int:
        return -(-known // self.parameters.block_size)

    def _preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to the head of the queue, to be computed again from its start."""
        if sequence.decoding:
            sequence.last_token_at = self._stepped_at
        self._release(sequence)
        sequence.stage = Stage.WAITING
        sequence.computed = 0
        sequence.preemptions += 1
        self._preemptions += 1
        self._waiting.appendleft(sequence)

    def _close(self, sequence: Sequence, reason: FinishReason, now: float) -> Finish:
        if sequence.stage is Stage.RUNNING:
            self._release(sequence)
        sequence.stage = Stage.DONE
        del self._sequences[sequence.request.id]
        return sequence.finish(reason, sequence.generated, now)

    def _release(self, sequence: Sequence) -> None:
        """Take a sequence out of the batch, and its blocks back."""
        self._running.remove(sequence)
        self._noise = None
        if sequence.decoding:
            # The newest token is in no block yet, unless the step that computes it is under way.
            known = self._decoders.known(sequence) - (self._under_way is None)
            self._free_blocks += self._blocks_of(known)
            self._decoders.leave(sequence)
        else:
            self._prefilling.remove(sequence)
            self._free_blocks += sequence.blocks
        sequence.blocks = 0
        if sequence.pinned:
            self._prefixes.unpin(sequence.request.prefix, self._free_blocks)
            sequence.pinned = 0


def _levels(step: Step) -> Levels:
    return 1.0, step.tensor, step.bandwidth
