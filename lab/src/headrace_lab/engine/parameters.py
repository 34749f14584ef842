"""What an engine can do: speeds and limits, each with its unit."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineParameters:
    """An engine's speeds and limits.

    A step lasts `max(decode_base_s, compute) + decode_per_sequence_s * decoding sequences +
    decode_per_context_token_s * tokens of their contexts`, over `speed`: reading the weights once and
    computing overlap; reading the sequences' caches does not. A chunk of n prompt tokens behind m
    others computes for `n / prefill_tokens_per_s + attention_per_pair_s * n * (m + n / 2)`, a decoding
    sequence for one token.

    Raises ValueError that names every figure out of range.
    """

    prefill_tokens_per_s: float = 16_000.0
    """Prompt tokens computed per second while nothing else runs."""
    decode_base_s: float = 0.020
    """Seconds of a step that decodes one sequence, without that sequence's own share."""
    decode_per_sequence_s: float = 0.000_2
    """Seconds that each decoding sequence adds to a step."""
    decode_per_context_token_s: float = 0.0
    """Seconds that each token in the cache of a decoding sequence adds to a step."""
    attention_per_pair_s: float = 0.0
    """Seconds of attention for each pair of a prompt token and one before it."""
    max_num_seqs: int = 256
    """Most sequences that run at once."""
    max_num_batched_tokens: int = 2048
    """Token budget of a step: decode tokens first, prompt chunks with what is left."""
    kv_capacity_tokens: int = 65_536
    """Tokens that the KV cache holds, in whole blocks."""
    block_size: int = 16
    """Tokens of a KV block."""
    max_model_len: int = 8192
    """Most tokens of a prompt and its answer together."""
    speed: float = 1.0
    """This engine's speed relative to the figures above: 0.6 = every step takes 1/0.6 as long."""
    step_jitter: float = 0.02
    """Half-width of the uniform noise on a step's duration, as a share of it, [0, 1). It is drawn for each
    batch, and stays while the batch does."""
    prefix_caching: bool = False
    """Keep computed prompts for others that begin alike."""
    prefix_block_tokens: int = 512
    """Tokens that one id of a request's `prefix` stands for."""
    stop_chance: float = 0.0
    """Chance that a token ends the answer before its limit, [0, 1); 0 = always the full length."""

    def __post_init__(self) -> None:
        problems = [*self._out_of_range(), *self._contradictions()]
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def kv_blocks(self) -> int:
        """Whole KV blocks."""
        return self.kv_capacity_tokens // self.block_size

    def _out_of_range(self) -> list[str]:
        problems = []
        for name in ("prefill_tokens_per_s", "decode_base_s", "speed"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                problems.append(f"{name} is {value}; give a number above 0")
        for name in ("decode_per_sequence_s", "decode_per_context_token_s", "attention_per_pair_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                problems.append(f"{name} is {value}; give 0 or more")
        for name in ("max_num_seqs", "block_size", "prefix_block_tokens"):
            if getattr(self, name) < 1:
                problems.append(f"{name} is {getattr(self, name)}; give 1 or more")
        if self.max_model_len < 2:
            problems.append(f"max_model_len is {self.max_model_len}; give 2 or more")
        for name in ("step_jitter", "stop_chance"):
            if not 0 <= getattr(self, name) < 1:
                problems.append(f"{name} is {getattr(self, name)}; give 0 or more and less than 1")
        return problems

    def _contradictions(self) -> list[str]:
        problems = []
        if self.max_num_batched_tokens < self.max_num_seqs:
            problems.append(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is below max_num_seqs "
                f"({self.max_num_seqs}); a step must hold one token of each running sequence"
            )
        if self.block_size >= 1 and self.kv_blocks * self.block_size < self.max_model_len:
            problems.append(
                f"kv_capacity_tokens ({self.kv_capacity_tokens}) cannot hold one sequence of max_model_len "
                f"({self.max_model_len}); raise it or lower max_model_len"
            )
        return problems
