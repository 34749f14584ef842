"""The latest picks with all that led to them, for `headrace explain --request`."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace_controller.picker.candidates import Candidates, Flags, Floats
from headrace_controller.picker.cost import Costs
from headrace_controller.picker.requests import Ask, Pick, Served

MAX_TRACES: Final = 2048
MAX_ROWS: Final = 262_144
"""Candidates kept together: some megabytes."""
SHOWN: Final = 32


@dataclass(slots=True)
class Trace:
    """One pick. `usable` None = all candidates; `cached` None = nothing of it anywhere; `served` None = no
    answer yet, or it is not followed."""

    gateway: str
    at: float
    ask: Ask
    pick: Pick
    tokens: int
    candidates: Candidates | None = None
    costs: Costs | None = None
    usable: Flags | None = None
    cached: Floats | None = None
    served: Served | None = None

    @property
    def rows(self) -> int:
        """How much is kept."""
        return 0 if self.candidates is None else len(self.candidates.lineup)


@dataclass(frozen=True, slots=True)
class CandidateView:
    """One cell that might have been named. Seconds and tokens, `cached_tokens` being those of the prompt that
    it is expected to hold, and `held_up_s` what is charged for the answers that it holds up; `named` counts
    from 1, 0 = not named."""

    cell: str
    predicted_s: float
    held_up_s: float
    cost_s: float
    penalty: float
    rtt_s: float
    work_tokens: float
    cached_tokens: float
    usable: bool
    named: int


@dataclass(frozen=True, slots=True)
class PickView:
    """A pick for people; the cheapest candidates first. `age_s` since it was made."""

    request: str
    gateway: str
    model: str
    age_s: float
    outcome: str
    prompt_tokens: int
    session: str
    candidates: tuple[CandidateView, ...]
    candidates_total: int
    served_by: str
    as_named: bool | None
    predicted_s: float | None
    observed_s: float | None


class Recent:
    """The newest traces by the requests' ids; bounded."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._rows = 0

    def add(self, trace: Trace) -> None:
        """Keep a trace; the oldest goes where there are too many."""
        self._drop(self._traces.pop(trace.ask.key, None))
        self._traces[trace.ask.key] = trace
        self._rows += trace.rows
        while len(self._traces) > MAX_TRACES or (self._rows > MAX_ROWS and len(self._traces) > 1):
            self._drop(self._traces.popitem(last=False)[1])

    def get(self, key: str) -> Trace | None:
        """The trace of a request; None where it is not kept."""
        return self._traces.get(key)

    def view(self, key: str, now: float) -> PickView | None:
        """The same for people."""
        trace = self._traces.get(key)
        if trace is None:
            return None
        served = trace.served
        return PickView(
            request=key,
            gateway=trace.gateway,
            model=trace.ask.model,
            age_s=now - trace.at,
            outcome=trace.pick.outcome.value,
            prompt_tokens=trace.tokens,
            session=trace.ask.session,
            candidates=_rows(trace),
            candidates_total=trace.rows,
            served_by="" if served is None else served.cell,
            as_named=None if served is None or not trace.pick.cells else served.as_named,
            predicted_s=trace.pick.predicted_s if trace.pick.cells else None,
            observed_s=None if served is None else served.observed_s,
        )

    def _drop(self, trace: Trace | None) -> None:
        if trace is not None:
            self._rows -= trace.rows


def _rows(trace: Trace) -> tuple[CandidateView, ...]:
    if trace.candidates is None or trace.costs is None:
        return ()
    lineup, costs, usable = trace.candidates.lineup, trace.costs, trace.usable
    shown = np.argsort(costs.cost, kind="stable")[:SHOWN].tolist()
    named = {cell: number for number, cell in enumerate(trace.pick.cells, 1)}
    return tuple(
        CandidateView(
            cell=lineup.ids[at],
            predicted_s=float(costs.predicted[at]),
            held_up_s=float(costs.held_up[at]),
            cost_s=float(costs.cost[at]),
            penalty=float(trace.candidates.penalty[at]),
            rtt_s=float(trace.candidates.rtt_s[at]),
            work_tokens=float(costs.work[at]),
            cached_tokens=0.0 if trace.cached is None else float(trace.cached[at]),
            usable=usable is None or bool(usable[at]),
            named=named.get(lineup.ids[at], 0),
        )
        for at in shown
    )
