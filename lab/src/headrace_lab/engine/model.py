"""Continuous batching with chunked prefill, as a pure state machine.

Whoever drives it owns the clock. A lab cell, in real time, goes step by step: `begin_step` says what is
computed and for how long, `finish_step` is called when that time has passed. A simulator, in virtual
time, goes from change to change: `begin_run` begins as many steps as one batch will have if nothing
comes, and `cut` ends such a run with the step under way, for a request that has come. Both give the same
tokens at the same times. Randomness comes from the seed alone.
"""

from __future__ import annotations

from headrace_lab.engine import batches, outlook, results
from headrace_lab.engine.parameters import EngineParameters
from headrace_lab.engine.requests import ContextLengthError, Finish, FinishReason, Output, Request
from headrace_lab.engine.sequences import Chunk, Sequence, Stage, Step
from headrace_lab.engine.state import EngineState
from headrace_lab.engine.stats import EngineStats


class Engine:
    """One engine.

    Invariants: a submitted request is waiting, running or finished, never lost; blocks held by
    running sequences never exceed the capacity; a waiting sequence holds none. `now` must not
    go backwards from call to call.
    """

    def __init__(self, parameters: EngineParameters, seed: int = 0) -> None:
        self.parameters = parameters
        self._state = EngineState(parameters, seed)

    @property
    def slowdown(self) -> float:
        """Factor on the duration of the steps to come, above 0; 4 = four times as slow."""
        return self._state.slowdown

    @slowdown.setter
    def slowdown(self, factor: float) -> None:
        if not 0 < factor < float("inf"):
            raise ValueError(f"slowdown is {factor}; give a number above 0")
        self._state.slowdown = factor

    @property
    def due(self) -> float | None:
        """When the step or run under way is done; None while nothing is."""
        step = self._state.under_way
        return None if step is None else step.started_at + step.duration_s

    def submit(self, request: Request, now: float) -> None:
        """Queue a request.

        Raises ContextLengthError if it cannot fit, ValueError if its id is in use.
        """
        state, limit = self._state, self.parameters.max_model_len
        if request.prompt_tokens + request.max_tokens > limit:
            raise ContextLengthError(request.prompt_tokens, request.max_tokens, limit)
        if request.id in state.sequences:
            raise ValueError(f"request id {request.id} is in use")
        output_tokens, stops = self._draw_length(request)
        sequence = Sequence(request, output_tokens, stops, arrived_at=now)
        state.sequences[request.id] = sequence
        state.waiting.append(sequence)

    def abort(self, request_id: str, now: float) -> Finish | None:
        """End a request and give back its blocks at once; None if it is not (or no longer) here.

        A run under way is cut: ask for `due` again.
        """
        state = self._state
        sequence = state.sequences.get(request_id)
        if sequence is None:
            return None
        self.cut(now)
        if sequence.stage is Stage.WAITING:
            state.waiting.remove(sequence)
        return state.close(sequence, FinishReason.ABORT, now)

    def begin_step(self, now: float) -> Step | None:
        """Choose the next batch; None if there is nothing to do.

        Raises ValueError while another step is under way.
        """
        step = batches.begin(self._state, now, most=1)
        if step is not None:
            decoding = (Chunk(each, 1) for each in self._state.running if each.decoding)
            step.chunks = (*decoding, *step.chunks)
        return step

    def begin_run(self, now: float) -> Step | None:
        """Choose the next batch and all the steps that it will have if nothing comes; None if there is
        nothing to do. Raises ValueError while another step is under way."""
        return batches.begin(self._state, now, most=None)

    def cut(self, now: float) -> None:
        """End the run under way, if there is one, with the step that it is in at `now`."""
        step = self._state.under_way
        if step is not None and step.count > 1:
            results.cut(self._state, step, now)

    def finish_step(self, step: Step, now: float) -> list[Output]:
        """Take in a step's result: at most one token for each sequence in it, in batch order.

        Raises ValueError if `step` is not the one under way.
        """
        state = self._state
        since = results.end(state, step, now)
        outputs = []
        for sequence, tokens in step.chunks:
            if sequence.stage is Stage.DONE:  # aborted while the step ran
                continue
            if sequence.decoding:
                outputs.append(results.decoded(state, sequence, since, now))
            elif (output := results.prefilled(state, sequence, tokens, now)) is not None:
                outputs.append(output)
        state.decoders.ended()
        return outputs

    def finish_run(self, step: Step, now: float) -> list[Output]:
        """Take in a run's result. Of its tokens only those are given that begin an answer, go on with
        one after it was pre-empted, or end one.

        Raises ValueError if `step` is not the one under way.
        """
        state = self._state
        since = results.end(state, step, now)
        outputs = [results.decoded(state, sequence, since, now) for sequence in state.decoders.ended()]
        for sequence, tokens in step.chunks:
            if sequence.stage is Stage.DONE:
                continue
            if (output := results.prefilled(state, sequence, tokens, now)) is not None:
                outputs.append(output)
        return outputs

    def stats(self, now: float) -> EngineStats:
        """The engine's figures at `now`."""
        state = self._state
        done = ahead = 0
        if (step := state.under_way) is None:
            busy, tensor, bandwidth = state.activity.read(now)
        else:
            busy, tensor, bandwidth = state.activity.read(now, step.started_at, results.levels(step))
            done = step.done_by(now)
            ahead = state.decoders.growth(1, done)
        blocks = self.parameters.kv_blocks
        used = blocks - state.free_blocks + ahead
        return EngineStats(
            running=len(state.running),
            waiting=len(state.waiting),
            kv_fill=used / blocks,
            kv_blocks_used=used,
            kv_blocks=blocks,
            preemptions=state.preemptions,
            prompt_tokens=state.prompt_tokens,
            generation_tokens=state.generation_tokens + done * state.decoders.size,
            steps=state.decoders.passes + done,
            busy=busy,
            tensor=tensor,
            bandwidth=bandwidth,
            prefix_queries=state.prefix_queries,
            prefix_hits=state.prefix_hits,
        )

    @property
    def has_queue(self) -> bool:
        """Whether a request that came now would wait behind others."""
        return bool(self._state.waiting)

    def predict_ttft(self, request: Request, now: float, ahead: int = 0) -> float:
        """Seconds until a request that came now would have its first token, were nothing else to come;
        `ahead` are prompt tokens that will be here before it. Exact where one step follows the other
        without a change of the batch, and a good estimate elsewhere. Changes nothing."""
        return outlook.predict_ttft(self._state, request, now, ahead)

    def _draw_length(self, request: Request) -> tuple[int, bool]:
        """Tokens of the answer, and whether it stops by itself on the last of them."""
        chance = self.parameters.stop_chance
        if chance > 0 and not request.ignore_eos:
            for length in range(1, request.max_tokens + 1):
                if self._state.random.random() < chance:
                    return length, True
        return request.max_tokens, False
