"""What each of the two loops did in a run: weights pushed, and requests placed one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from headrace_lab.demo.display import number, say
from headrace_lab.demo.observe import TROUBLES, Observer
from headrace_lab.demo.phases import last_counter
from headrace_lab.demo.result import Check

PUSHES = "headrace_xds_pushes_total"
NAMED = ("named", "affinity")
LEAST_NAMED = 0.5
"""Of all requests, the share that the picker must have named a cell for. It leaves some to the weights, and
knows nothing of those before its first picture of the fleet."""


@dataclass(frozen=True, slots=True)
class Loops:
    """`pushes` of the slow loop; the fast loop's picks by outcome and how far its predictions were off, in
    times, beside a plain guess. None = could not be read, or there were too few."""

    pushes: float | None = None
    picks: Mapping[str, int] = field(default_factory=dict)
    error: float | None = None
    guess_error: float | None = None

    @property
    def named(self) -> int:
        """Requests that were named a cell."""
        return sum(self.picks.get(each, 0) for each in NAMED)

    def figures(self) -> dict[str, float | None]:
        """For the result file."""
        return {
            "xds_pushes": self.pushes,
            "picks_named": float(self.named),
            "picks": float(sum(self.picks.values())),
            "prediction_off_by": self.error,
            "guess_off_by": self.guess_error,
        }


async def read(observer: Observer) -> Loops:
    """Ask the controller at the end of a run; what cannot be read is left out."""
    pushes = await last_counter(observer, PUSHES)
    try:
        return read_loops(await observer.picker(), pushes)
    except TROUBLES:
        return Loops(pushes)


def read_loops(data: Mapping[str, Any], pushes: float | None) -> Loops:
    """Read the answer of GET /api/v1/picker. Raises KeyError, TypeError or ValueError."""
    return Loops(
        pushes,
        {str(outcome): int(count) for outcome, count in data["picks"].items()},
        _number(data["prediction_error"]),
        _number(data["guess_error"]),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def check(loops: Loops, requests: int) -> Check:
    """The picker must have named cells for most of the requests."""
    wanted = LEAST_NAMED * requests
    found = f"{loops.named} of {requests}"
    return Check("requests named a cell", loops.named >= max(1.0, wanted), found, f"at least {wanted:.0f}")


def show(console: Console, loops: Loops) -> None:
    """Print both loops."""
    say(console, f"\nslow loop: {number(loops.pushes, '.0f')} resources pushed to Envoy")
    picks = ", ".join(f"{count} {outcome}" for outcome, count in sorted(loops.picks.items()))
    say(console, f"fast loop: {picks or 'no picks'}")
    off, guess = number(loops.error, ".2f"), number(loops.guess_error, ".2f")
    say(console, f"  predicted times to first token were off by {off} times, a plain guess by {guess}")
