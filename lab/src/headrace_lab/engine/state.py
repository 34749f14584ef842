"""What an engine holds: its sequences, the KV blocks they take, and its counters."""

from __future__ import annotations

import random
from collections import deque

from headrace_lab.engine.decoders import Decoders
from headrace_lab.engine.parameters import EngineParameters
from headrace_lab.engine.prefixes import PrefixCache
from headrace_lab.engine.requests import Finish, FinishReason, Request
from headrace_lab.engine.sequences import Sequence, Stage, Step
from headrace_lab.engine.stats import Activity


class EngineState:
    """The state of one engine, shared by what forms its batches and what takes in their results.

    Every sequence is in `sequences`, and in `waiting` or `running`; those that run and do not decode
    yet are in `prefilling` too. `noise` is the running batch's, None = to be drawn; `stepped_at` is
    when the last step ended.
    """

    __slots__ = (
        "activity",
        "decoders",
        "free_blocks",
        "generation_tokens",
        "noise",
        "parameters",
        "preemptions",
        "prefilling",
        "prefix_hits",
        "prefix_queries",
        "prefixes",
        "prompt_tokens",
        "random",
        "running",
        "sequences",
        "slowdown",
        "stepped_at",
        "under_way",
        "waiting",
    )

    def __init__(self, parameters: EngineParameters, seed: int) -> None:
        self.parameters = parameters
        self.slowdown = 1.0
        self.random = random.Random(seed)
        self.sequences: dict[str, Sequence] = {}
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.decoders = Decoders(parameters.block_size)
        self.prefixes = PrefixCache(parameters.prefix_block_tokens // parameters.block_size)
        self.free_blocks = parameters.kv_blocks
        self.under_way: Step | None = None
        self.activity = Activity()
        self.stepped_at = 0.0
        self.noise: float | None = None
        self.preemptions = self.prompt_tokens = self.generation_tokens = 0
        self.prefix_queries = self.prefix_hits = 0

    def blocks_of(self, known: int) -> int:
        """KV blocks that so many tokens take."""
        return -(-known // self.parameters.block_size)

    def known_prefix(self, request: Request) -> int:
        """Tokens of a prompt that the prefix cache holds; the last one is computed in any case."""
        p = self.parameters
        if not (p.prefix_caching and request.prefix):
            return 0
        return min(request.prompt_tokens - 1, self.prefixes.hits(request.prefix) * p.prefix_block_tokens)

    def close(self, sequence: Sequence, reason: FinishReason, now: float) -> Finish:
        """A sequence is over."""
        if sequence.stage is Stage.RUNNING:
            self.release(sequence)
        sequence.stage = Stage.DONE
        del self.sequences[sequence.request.id]
        return sequence.finish(reason, sequence.generated, now)

    def preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to the head of the queue, to be computed again from its start."""
        if sequence.decoding:
            sequence.last_token_at = self.stepped_at
        self.release(sequence)
        sequence.stage = Stage.WAITING
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)

    def release(self, sequence: Sequence) -> None:
        """Take a sequence out of the batch, and its blocks back."""
        self.running.remove(sequence)
        self.noise = None
        if sequence.decoding:
            # The newest token is in no block yet, unless the step that computes it is under way.
            known = self.decoders.known(sequence) - (self.under_way is None)
            self.free_blocks += self.blocks_of(known)
            self.decoders.leave(sequence)
        else:
            self.prefilling.remove(sequence)
            self.free_blocks += sequence.blocks
        sequence.blocks = 0
        if sequence.pinned:
            self.prefixes.unpin(sequence.request.prefix, self.free_blocks)
            sequence.pinned = 0
