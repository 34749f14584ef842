"""When the picker does more harm than good, and says so.

It must be better than a plain guess: that every request of a pool waits as long as the pool's requests
did of late. And it must be fast. Where it is not, it stands aside for a while that doubles each time.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

SLOW: Final = "slow"
WORSE: Final = "prediction"
REST_S: Final = 60.0
LONGEST_REST_S: Final = 1800.0
WINDOW: Final = 200
"""Requests by which it is judged."""
TOLERATED: Final = 1.25
"""How much worse than the guess it may be: where all requests wait alike, the guess is as good."""
TOLERATED_ERROR: Final = math.log(1.5)
"""A typical error up to which nobody asks for the guess: 1.5 times as long, or as short."""
SLOW_SHARE: Final = 0.05
_GUESS_STEP: Final = 0.05
_LEAST_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Standing:
    """How the guard stands; `kind`, SLOW or WORSE, and `reason` say why it is not on. Errors are typical
    (median) |log ratios| over the window; None = too few."""

    on: bool
    kind: str
    reason: str
    until: float
    error: float | None
    guess_error: float | None
    slow_share: float | None


class Guard:
    """Judges by the last requests. `bound_s` is how long a pick may take."""

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._errors: deque[float] = deque(maxlen=WINDOW)
        self._guess_errors: deque[float] = deque(maxlen=WINDOW)
        self._slow: deque[bool] = deque(maxlen=WINDOW)
        self._guesses: dict[str, float] = {}
        self._until = -math.inf
        self._rest_s = REST_S
        self._reason = ""
        self._good = 0
        self._kind = ""

    def on(self, now: float) -> bool:
        """Whether picks are trusted."""
        return now >= self._until

    def took(self, seconds: float, now: float) -> str:
        """A pick took so long. Says why where the picker is to stand aside from now on, else ""."""
        self._slow.append(seconds > self._bound_s)
        if len(self._slow) < WINDOW or sum(self._slow) <= SLOW_SHARE * WINDOW:
            return ""
        slow = sum(self._slow)
        words = f"{slow} of {WINDOW} picks took longer than {1000 * self._bound_s:g} ms"
        return self._rest(SLOW, words, now)

    def saw(self, model: str, predicted_s: float, observed_s: float, now: float) -> str:
        """A first token came. Says why where the picker is to stand aside from now on, else ""."""
        observed = math.log(max(observed_s, _LEAST_S))
        guess = self._guesses.get(model)
        self._guesses[model] = observed if guess is None else guess + _GUESS_STEP * (observed - guess)
        if guess is None or not self.on(now):
            return ""
        self._errors.append(abs(observed - math.log(max(predicted_s, _LEAST_S))))
        self._guess_errors.append(abs(observed - guess))
        self._good += 1
        if self._good < WINDOW:
            return ""
        self._good = 0
        error, guess_error = _median(self._errors), _median(self._guess_errors)
        if error <= max(TOLERATED * guess_error, TOLERATED_ERROR):
            self._rest_s = REST_S
            return ""
        return self._rest(
            WORSE,
            f"its prediction is off by {math.exp(error):.2f} times, a plain guess by "
            f"{math.exp(guess_error):.2f}",
            now,
        )

    def standing(self, now: float) -> Standing:
        """For people."""
        full = len(self._errors) >= WINDOW // 4
        return Standing(
            on=self.on(now),
            kind="" if self.on(now) else self._kind,
            reason="" if self.on(now) else self._reason,
            until=self._until,
            error=_median(self._errors) if full else None,
            guess_error=_median(self._guess_errors) if full else None,
            slow_share=sum(self._slow) / len(self._slow) if self._slow else None,
        )

    def keep(self, models: frozenset[str]) -> None:
        """Forget pools that are not there any more."""
        for model in self._guesses.keys() - models:
            del self._guesses[model]

    def _rest(self, kind: str, reason: str, now: float) -> str:
        for each in (self._errors, self._guess_errors, self._slow):
            each.clear()
        self._good = 0
        self._until, self._kind, self._reason = now + self._rest_s, kind, reason
        self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        return reason


def _median(values: deque[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
