"""What each gateway saw of each cell: counts since the start, and recent times in buckets."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Final

from headrace_controller.gateway.records import OUTCOMES, Record

BUCKETS: Final = 42
_LEAST_S: Final = 0.001
_A_DOUBLING: Final = 2
FADE_S: Final = 60.0


class Times:
    """Durations of about the last minutes, in buckets of a ratio of the square root of 2 from 1 ms on."""

    __slots__ = ("_counts", "_faded_at")

    def __init__(self) -> None:
        self._counts = array("d", bytes(8 * BUCKETS))
        self._faded_at = float("-inf")

    def add(self, seconds: float, count: float, now: float) -> None:
        """Take in `count` requests of this duration."""
        self._fade(now)
        self._counts[_bucket(seconds)] += count

    def quantile(self, share: float, now: float) -> float | None:
        """The duration, s, that this share of the requests stayed below; None = too few to say."""
        self._fade(now)
        total = sum(self._counts)
        if total < 1.0:
            return None
        wanted, below = share * total, 0.0
        for bucket, count in enumerate(self._counts):
            if below + count >= wanted and count:
                inside = (wanted - below) / count
                return float(_edge(bucket) * 2.0 ** (inside / _A_DOUBLING))
            below += count
        return _edge(BUCKETS)

    def _fade(self, now: float) -> None:
        # On use, not on time: most accounts are idle.
        if self._faded_at == float("-inf"):
            self._faded_at = now
        halves = int((now - self._faded_at) // FADE_S)
        if halves > 0:
            factor = 0.5 ** min(halves, 64)
            self._counts = array("d", [each * factor for each in self._counts])
            self._faded_at += halves * FADE_S


@dataclass(slots=True)
class Account:
    """One cell as one gateway saw it.

    `counts` by Outcome, since the start, sampling made up for. `first_byte` is that of answers which
    are not streams, and `whole` the time to the last byte, both of answers that were whole.
    `issued` and `in_progress` come by the load reports; the latter by the Envoy that reports.
    """

    counts: list[float] = field(default_factory=lambda: [0.0] * len(OUTCOMES))
    first_byte: Times = field(default_factory=Times)
    whole: Times = field(default_factory=Times)
    failed_tries: float = 0.0
    issued: float = 0.0
    in_progress: dict[int, int] = field(default_factory=dict)

    def add(self, record: Record, count: float, now: float) -> None:
        """Take in a request that stands for `count` of them."""
        self.counts[record.outcome] += count
        if record.outcome == 0:
            if record.first_byte_s is not None and not record.streamed:
                self.first_byte.add(record.first_byte_s, count, now)
            if record.last_byte_s is not None:
                self.whole.add(record.last_byte_s, count, now)


@dataclass(frozen=True, slots=True)
class CellReport:
    """An account, for people: counts by name, times in s, None = not known."""

    counts: dict[str, int]
    failed_tries: int
    issued: int
    in_progress: int
    first_byte_p50_s: float | None
    first_byte_p95_s: float | None
    whole_p50_s: float | None
    whole_p95_s: float | None


def report_of(account: Account, now: float) -> CellReport:
    """The account as of now."""
    return CellReport(
        counts={name: round(count) for name, count in zip(OUTCOMES, account.counts, strict=True)},
        failed_tries=round(account.failed_tries),
        issued=round(account.issued),
        in_progress=sum(account.in_progress.values()),
        first_byte_p50_s=account.first_byte.quantile(0.5, now),
        first_byte_p95_s=account.first_byte.quantile(0.95, now),
        whole_p50_s=account.whole.quantile(0.5, now),
        whole_p95_s=account.whole.quantile(0.95, now),
    )


def _bucket(seconds: float) -> int:
    if seconds < _LEAST_S:
        return 0
    return min(BUCKETS - 1, int(math.log2(seconds / _LEAST_S) * _A_DOUBLING))


def _edge(bucket: int) -> float:
    return float(_LEAST_S * 2.0 ** (bucket / _A_DOUBLING))
