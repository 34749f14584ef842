"""How long an engine will need for what is in it: what perfect knowledge of it would say."""

from __future__ import annotations

from headrace_lab.engine.decoders import Decoders
from headrace_lab.engine.parameters import EngineParameters


class Outlook:
    """Durations of passes to come, with the sequences that decode now. Noise is left out."""

    def __init__(self, parameters: EngineParameters, slowdown: float, decoders: Decoders) -> None:
        self._parameters = parameters
        self._scale = slowdown / parameters.speed
        self._decoders = decoders
        self._caches_s = (
            decoders.size * parameters.decode_per_sequence_s
            + decoders.context * parameters.decode_per_context_token_s
        )

    def prefill_s(self, tokens: int, pairs: float) -> float:
        """Seconds until so many prompt tokens, with so many attention pairs, are computed."""
        p, decoding = self._parameters, self._decoders.size
        passes = -(-tokens // max(1, p.max_num_batched_tokens - decoding))
        compute_s = (tokens + passes * decoding) / p.prefill_tokens_per_s + pairs * p.attention_per_pair_s
        return (max(passes * p.decode_base_s, compute_s) + passes * self._caches_s) * self._scale

    def until_room(self, blocks: int, seats: int) -> float:
        """Seconds until answers that end now give back so many KV blocks and seats in the batch; the
        time until the last of them ends where even that is not enough."""
        p, passes = self._parameters, 0
        for left, sequence in self._decoders.ends():
            passes = left
            blocks -= -(-self._decoders.known(sequence) // p.block_size)
            seats -= 1
            if blocks <= 0 and seats <= 0:
                break
        decoding = self._decoders.size
        pass_s = max(p.decode_base_s, decoding / p.prefill_tokens_per_s) + self._caches_s
        return passes * pass_s * self._scale
