"""Up to which size of body a request is taken to fit a small cell, learned from what cells refuse.

Tokens are what counts and bytes are what a gateway sees. The boundary is a number of bytes per token: it
starts low, where nearly everything that passes fits, and moves by evidence alone. It falls at once to
where the small cells refuse hardly more than the larger ones do, for a client that sends bad requests is
refused everywhere; it rises by small steps, each after a number of requests just below it were accepted,
and stays below what was refused before for a while that grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from headrace_controller.capability.sizes import ACCEPTED, EDGES, REFUSED, Counts
from headrace_controller.settings import CapabilitySettings

TOLERATED_SHARE: Final = 0.005
"""Of the requests below the boundary, how many may be refused for their length."""

STEP: Final = 1.05
STEP_SAMPLES: Final = 20
_NEAR: Final = 0.7
_FORGIVEN: Final = 1.0
_COMPARABLE: Final = 10
# Standard deviations of what bad requests make by chance, which are refused whatever their length.
_SURE: Final = 4.0
_DOUBT: Final = 2.0
_FIRST_PATIENCE_S: Final = 600.0
_MOST_PATIENCE_S: Final = 86400.0


@dataclass(frozen=True, slots=True)
class Boundary:
    """Bytes per token below which a request counts as fitting; `ceiling` was refused before, and holds
    until `until` (the controller's clock). `reason` says what moved it last."""

    bytes_per_token: float
    ceiling: float = float("inf")
    until: float = 0.0
    patience_s: float = _FIRST_PATIENCE_S
    reason: str = "the start value of the settings"

    def bytes_below(self, tokens: float) -> int:
        """The size up to which a body counts as at most `tokens` tokens."""
        return max(0, int(self.bytes_per_token * tokens))


def judge(
    boundary: Boundary, length: int, own: Counts, larger: Counts, settings: CapabilitySettings, now: float
) -> Boundary:
    """The boundary after the evidence: the same object where it does not move.

    `own` (BUCKETS, 2) are the requests that cells of `length` tokens answered since it moved last,
    `larger` those of the pool's larger cells.
    """
    tokens = room(length, settings)
    limit = boundary.bytes_per_token * tokens
    end = int(np.searchsorted(EDGES, limit, side="left"))
    sums = _sums(own, larger)
    if _is_refused(sums, end, _SURE, _FORGIVEN):
        return _lowered(boundary, tokens, sums, end, settings, now)
    near = own[:end, ACCEPTED][_NEAR * limit <= EDGES[:end]].sum()
    if near < STEP_SAMPLES or _is_refused(sums, end, _DOUBT, 0.0):
        return boundary
    return _raised(boundary, settings, now)


def room(length: int, settings: CapabilitySettings) -> int:
    """The tokens of a cell's `length` that a body may fill: templates and a short answer need the rest."""
    return max(1, length - settings.reserve_tokens)


class _Sums(NamedTuple):
    """(BUCKETS + 1,) over the buckets before each: requests, refusals beyond those that the larger cells
    would have made of them, and the variance of these."""

    total: Counts
    excess: Counts
    variance: Counts


def _sums(own: Counts, larger: Counts) -> _Sums:
    of_larger = larger.sum(axis=1)
    everywhere = larger[:, REFUSED].sum() / max(1.0, of_larger.sum())
    known = of_larger >= _COMPARABLE
    share = np.where(known, larger[:, REFUSED] / np.maximum(of_larger, 1.0), everywhere)
    total = own.sum(axis=1)
    # What the larger cells show is a sample, too.
    doubt = np.where(known, total / np.maximum(of_larger, 1.0), total / max(1.0, of_larger.sum()))
    variance = share * (1.0 - share) * total * (1.0 + doubt)
    columns = (total, own[:, REFUSED] - share * total, variance)
    return _Sums(*(np.concatenate(([0.0], np.cumsum(column))) for column in columns))


def _is_refused(sums: _Sums, end: int, sigmas: float, forgiven: float) -> bool:
    """Whether too many of the requests below bucket `end` are refused for their length: of all of them,
    or of the longest."""
    excess = sums.excess[end] - sums.excess[:end]
    noise = np.sqrt(sums.variance[end] - sums.variance[:end])
    allowed = max(forgiven, TOLERATED_SHARE * sums.total[end])
    return bool((excess > allowed + sigmas * noise).any())


def _lowered(
    boundary: Boundary, tokens: int, sums: _Sums, end: int, settings: CapabilitySettings, now: float
) -> Boundary:
    fit = end
    while fit and _is_refused(sums, fit, _SURE, _FORGIVEN):
        fit -= 1
    found = max(settings.least_bytes_per_token, float(EDGES[fit]) / tokens)
    if found >= boundary.bytes_per_token:
        return boundary
    return Boundary(
        found,
        ceiling=found,
        until=now + boundary.patience_s,
        patience_s=min(_MOST_PATIENCE_S, 2 * boundary.patience_s),
        reason=f"{sums.excess[end]:.0f} of {sums.total[end]:.0f} requests below it were refused for it",
    )


def _raised(boundary: Boundary, settings: CapabilitySettings, now: float) -> Boundary:
    ceiling = boundary.ceiling if now < boundary.until else float("inf")
    found = min(boundary.bytes_per_token * STEP, ceiling, settings.most_bytes_per_token)
    if found <= boundary.bytes_per_token:
        return boundary
    reason = f"{STEP_SAMPLES} requests and more just below it were accepted"
    return replace(boundary, bytes_per_token=found, reason=reason)
