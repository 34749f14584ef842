"""How long an engine will need for what is in it: what perfect knowledge of it would say."""

from __future__ import annotations

from headrace_lab.engine.decoders import Decoders
from headrace_lab.engine.parameters import EngineParameters
from headrace_lab.engine.requests import Request
from headrace_lab.engine.state import EngineState


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


def predict_ttft(state: EngineState, request: Request, now: float, ahead: int) -> float:
    """Seconds until a request that came at `now` would have its first token, were nothing else to come;
    `ahead` are prompt tokens that will be there before it."""
    p, step = state.parameters, state.under_way
    passes_of = Outlook(p, state.slowdown, state.decoders)
    wait_s, in_step = 0.0, 0
    if step is not None:
        done = step.done_by(now)
        wait_s = max(0.0, step.started_at + step.after(done + 1) - now)
        in_step = step.prefill_tokens
    own = request.prompt_tokens - state.known_prefix(request)
    tokens, pairs = own + ahead - in_step, own * (request.prompt_tokens - own / 2)
    for sequence in (*state.prefilling, *state.waiting):
        left = sequence.request.prompt_tokens + sequence.generated - sequence.computed
        tokens += left
        pairs += left * (sequence.computed + left / 2)
    blocked_s = 0.0
    blocks = sum(state.blocks_of(each.request.prompt_tokens + each.generated) for each in state.waiting)
    blocks += state.blocks_of(request.prompt_tokens + ahead)
    seats = len(state.running) + len(state.waiting) + 1
    if blocks > state.free_blocks or seats > p.max_num_seqs:
        blocked_s = passes_of.until_room(blocks - state.free_blocks, seats - p.max_num_seqs)
    return wait_s + max(blocked_s, passes_of.prefill_s(max(1, tokens), pairs))
