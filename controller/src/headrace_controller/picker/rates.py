"""What a first token takes at each cell, learned from the ones that came.

time = fixed + seconds a token x work + seconds a request x running. The three figures are those of a
least-squares fit to the relative errors, with forgetting, that starts from what the cells of its pool have
shown and weighs what is far off the prediction down: one stalled request moves a figure little, a throttled
GPU does in some ten. What a cell has shown fades with time as well: one that is not asked because it was slow
once, or seen at bad moments only, comes to be like the others of its pool and is asked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_controller.picker.fit import Fit, Three

FIXED_S: Final = 0.03
"""Where learning starts: two steps of an engine."""
PER_RUNNING_S: Final = 0.0005
FORGET: Final = 0.96
POOL_FORGET: Final = 0.995
"""What each new observation leaves of those before it: of a cell some 25 count, of its pool some 200."""
_SUSPECT: Final = 1.0
_FARTHEST: Final = 8.0
_LEAST_S: Final = 0.02
# Relative precision of the prior: as so many observations of that figure alone.
_TRUST: Final[Three] = (4.0, 0.5, 8.0)
HALF_S: Final = 30.0
"""After so long without another, an observation counts half."""
FADE_S: Final = 5.0
"""Time passes over a cell no more often than this: it costs a fit for each."""
_SPAN: Final = 200.0


@dataclass(frozen=True, slots=True)
class Rates:
    """s, s a prompt token, and s a request in the engine."""

    fixed_s: float
    s_per_token: float
    s_per_running: float

    def predict(self, work: float, running: float) -> float:
        """The time to the first token of a request that finds so much, s."""
        return self.fixed_s + self.s_per_token * work + self.s_per_running * running


class Learner:
    """Learns the rates of the cells by slot. A cell that is new starts from what its pool has shown, by
    the speed of its GPUs."""

    def __init__(self, prefill_tokens_per_s: float) -> None:
        self._start = Rates(FIXED_S, 1.0 / prefill_tokens_per_s, PER_RUNNING_S)
        self._fits: dict[int, Fit] = {}
        self._rates: dict[int, Rates] = {}
        self._speed: dict[int, float] = {}
        self._faded_at: dict[int, float] = {}
        self._pools: dict[str, Fit] = {}
        self._typical: dict[str, Rates] = {}
        self.samples: dict[int, int] = {}

    def begin(self, slot: int, model: str, speed: float, now: float) -> Rates:
        """The rates of a cell nothing is known of; `speed` is that of its GPUs, 1 = one H100."""
        self.forget(slot)
        self._faded_at[slot] = now
        self._speed[slot] = speed
        self._fits[slot] = Fit()
        self.samples[slot] = 0
        self._rates[slot] = self._prior(slot, model)
        return self._rates[slot]

    def forget(self, slot: int) -> None:
        """The slot is nobody's."""
        self._fits.pop(slot, None)
        self._rates.pop(slot, None)
        self._speed.pop(slot, None)
        self._faded_at.pop(slot, None)
        self.samples.pop(slot, None)

    def keep(self, models: frozenset[str]) -> None:
        """Forget pools that are not there any more."""
        for model in self._pools.keys() - models:
            del self._pools[model], self._typical[model]

    def rates(self, slot: int) -> Rates:
        """What is known now. Raises KeyError for a slot without a cell."""
        return self._rates[slot]

    def fade(self, slot: int, model: str, now: float) -> Rates | None:
        """Let time pass over what a cell has shown; its rates where they may have changed."""
        passed = now - self._faded_at[slot]
        if passed < FADE_S:
            return None
        self._faded_at[slot] = now
        self._fits[slot].fade(0.5 ** (passed / HALF_S))
        return self._solve(slot, model)

    def observe(self, slot: int, model: str, work: float, running: float, seconds: float) -> Rates:
        """A first token came after `seconds`, the path's round trip left out, at a cell that then had so
        much `work` (tokens, the request's own too) before it and so many requests `running`."""
        expected = max(self._rates[slot].predict(work, running), _LEAST_S)
        seconds = min(max(seconds, expected / _FARTHEST), expected * _FARTHEST)
        off = abs(seconds - expected) / expected
        weight = 1.0 if off <= _SUSPECT else _SUSPECT / off
        seen = (1.0 / expected, work / expected, running / expected)
        self.samples[slot] += 1
        return self._add(slot, model, seen, seconds / expected, weight)

    def saw_queue(self, slot: int, model: str, seconds: float, tokens: float) -> Rates:
        """A cell whose queue was never empty computed so many prompt tokens in so many seconds, answers'
        tokens beside them. For cells that show no first tokens."""
        expected = max(self._rates[slot].s_per_token * tokens, _LEAST_S)
        seconds = min(max(seconds, expected / _FARTHEST), expected * _FARTHEST)
        return self._add(slot, model, (0.0, tokens / expected, 0.0), seconds / expected, 1.0)

    def _add(self, slot: int, model: str, seen: Three, value: float, weight: float) -> Rates:
        self._fits[slot].add(seen, value, weight, FORGET)
        pool = self._pools.setdefault(model, Fit())
        fixed, work, running = seen
        # A GPU of half the speed computes so many tokens as one of speed 1 computes twice as many.
        pool.add((fixed, work / self._speed[slot], running), value, weight, POOL_FORGET)
        typical = self._typical.get(model, self._start)
        self._typical[model] = _solved(pool, self._start, typical)
        return self._solve(slot, model)

    def _solve(self, slot: int, model: str) -> Rates:
        self._rates[slot] = after = _solved(self._fits[slot], self._prior(slot, model), self._rates[slot])
        return after

    def _prior(self, slot: int, model: str) -> Rates:
        """What the cells of its pool have shown, at the speed of its own GPUs."""
        typical = self._typical.get(model, self._start)
        return Rates(typical.fixed_s, typical.s_per_token / self._speed[slot], typical.s_per_running)


def _solved(fit: Fit, prior: Rates, before: Rates) -> Rates:
    start, was = _three(prior), _three(before)
    # By the size of what a slow cell has shown, or its prior would outweigh it.
    p, q, r = (max(each, other) for each, other in zip(start, was, strict=True))
    found = fit.solve(start, _TRUST, (p, q, r))
    return Rates(*(min(max(each, of / _SPAN), of * _SPAN) for each, of in zip(found, start, strict=True)))


def _three(rates: Rates) -> Three:
    return (rates.fixed_s, rates.s_per_token, rates.s_per_running)
