"""`picker`: a cell for each request."""

from __future__ import annotations

from pydantic import Field

from headrace_shared.config import Settings


class PickerSettings(Settings):
    """The picker: it names a cell for each request, by its predicted time to first token and by what its
    prompt holds up there.

    An Envoy waits for it for `timeout_s` and then goes by the weights, as it does for the share `trickle`
    of the requests, which keeps evidence coming of cells that would not be named. Cells that cost at most
    `tolerance` more than the cheapest are equal. A second for which a prompt holds up one answer under
    way beside it costs as much as `held_up_weight` seconds of its own first token; 0 = first tokens alone
    count. `balance`: a request whose session was at a cell goes there as long as that costs at most so
    much more than the cheapest; 0 = only where it is as good, and the more, the more caches are used and
    the less load is balanced. A session is what the header `session_header` says, else `user` in the
    body. With `prefix_affinity` bodies are read too, and cells that computed the same beginning count as
    holding it, by blocks of `prefix_block_bytes`. Up to `fallbacks` other cells are named for retries.
    Until it has learned better a token is `bytes_per_token` bytes and a cell computes
    `prefill_tokens_per_s`. A picker of which more than one pick in twenty takes longer than
    `slow_pick_s`, or whose figures are worse than a plain guess, stands aside for a while. A request
    without an answer counts for `expiry_s`.
    """

    enabled: bool = False
    timeout_s: float = Field(0.025, ge=0.002, le=0.05)
    trickle: float = Field(0.01, ge=0, le=0.5)
    tolerance: float = Field(0.1, ge=0, le=2)
    held_up_weight: float = Field(0.03, ge=0, le=1)
    balance: float = Field(0.5, ge=0, le=10)
    session_header: str = Field("x-session-id", pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    prefix_affinity: bool = False
    prefix_block_bytes: int = Field(2048, ge=256, le=65536)
    fallbacks: int = Field(2, ge=0, le=8)
    bytes_per_token: float = Field(4.0, ge=0.5, le=16)
    prefill_tokens_per_s: float = Field(8000.0, ge=10, le=10_000_000)
    slow_pick_s: float = Field(0.01, ge=0.0005, le=0.05)
    expiry_s: float = Field(120.0, ge=5, le=3600)
