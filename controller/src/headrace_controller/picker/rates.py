"""What a first token takes at each cell, learned from the ones that came.

time = fixed + seconds a token x work + seconds a request x running. The three figures are those of a
least-squares fit to the relative errors, with forgetting, that starts from a prior and weighs what is far
off the prediction down: one stalled request moves a figure little, a throttled GPU does in some ten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headrace_controller.picker.fit import Fit, Three

FIXED_S: Final = 0.03
"""Where learning starts: two steps of an engine."""
PER_RUNNING_S: Final = 0.0005
FORGET: Final = 0.96
_SUSPECT: Final = 1.0
_FARTHEST: Final = 8.0
_LEAST_S: Final = 0.02
# Relative precision of the prior: as so many observations of that figure alone.
_TRUST: Final[Three] = (4.0, 0.5, 8.0)
_SCALE_STEP: Final = 0.05
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
        self._s_per_token = 1.0 / prefill_tokens_per_s
        self._fits: dict[int, Fit] = {}
        self._rates: dict[int, Rates] = {}
        self._speed: dict[int, float] = {}
        self._scale: dict[str, float] = {}
        self.samples: dict[int, int] = {}

    def begin(self, slot: int, model: str, speed: float) -> Rates:
        """The rates of a cell nothing is known of; `speed` is that of its GPUs, 1 = one H100."""
        self.forget(slot)
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
        self.samples.pop(slot, None)

    def keep(self, models: frozenset[str]) -> None:
        """Forget pools that are not there any more."""
        for model in self._scale.keys() - models:
            del self._scale[model]

    def rates(self, slot: int) -> Rates:
        """What is known now. Raises KeyError for a slot without a cell."""
        return self._rates[slot]

    def observe(self, slot: int, model: str, work: float, running: float, seconds: float) -> Rates:
        """A first token came after `seconds`, the path's round trip left out, at a cell that then had so
        much `work` (tokens, the request's own too) before it and so many requests `running`."""
        before = self._rates[slot]
        expected = max(before.predict(work, running), _LEAST_S)
        seconds = min(max(seconds, expected / _FARTHEST), expected * _FARTHEST)
        off = abs(seconds - expected) / expected
        weight = 1.0 if off <= _SUSPECT else _SUSPECT / off
        seen = (1.0 / expected, work / expected, running / expected)
        self._fits[slot].add(seen, seconds / expected, weight, FORGET)
        self.samples[slot] += 1
        after = self._fit(slot, model)
        self._rates[slot] = after
        self._note_scale(slot, model, after)
        return after

    def saw_queue(self, slot: int, model: str, seconds: float, tokens: float) -> Rates:
        """A cell whose queue was never empty computed so many prompt tokens in so many seconds, answers'
        tokens beside them. For cells that show no first tokens."""
        expected = max(self._rates[slot].s_per_token * tokens, _LEAST_S)
        seconds = min(max(seconds, expected / _FARTHEST), expected * _FARTHEST)
        self._fits[slot].add((0.0, tokens / expected, 0.0), seconds / expected, 1.0, FORGET)
        self._rates[slot] = after = self._fit(slot, model)
        self._note_scale(slot, model, after)
        return after

    def _prior(self, slot: int, model: str) -> Rates:
        scale = math.exp(self._scale.get(model, 0.0))
        return Rates(FIXED_S, self._s_per_token * scale / self._speed[slot], PER_RUNNING_S)

    def _fit(self, slot: int, model: str) -> Rates:
        prior = self._prior(slot, model)
        start = (prior.fixed_s, prior.s_per_token, prior.s_per_running)
        found = self._fits[slot].solve(start, _TRUST)
        near = [min(max(each, of / _SPAN), of * _SPAN) for each, of in zip(found, start, strict=True)]
        return Rates(*near)

    def _note_scale(self, slot: int, model: str, rates: Rates) -> None:
        """What the model costs, whatever it runs on."""
        shown = math.log(rates.s_per_token * self._speed[slot] / self._s_per_token)
        before = self._scale.get(model)
        self._scale[model] = shown if before is None else before + _SCALE_STEP * (shown - before)
