"""The cost of sending one request to each cell, in seconds: its predicted time to first token, and a part
of what its prompt holds up there.

A cell's state is one row of a table, so that a pool is gathered in one go and each step of the formula
is one operation on all of its cells.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace_controller.picker.candidates import Candidates, Floats

# Columns of the table.
PENDING: Final = 0
"""Prompt tokens sent by us of which no first token is known yet."""
HEAD: Final = 1
"""Those of them that belong to the oldest request."""
SINCE: Final = 2
"""When the engine can have begun with the oldest request."""
OTHERS: Final = 3
"""Prompt tokens that wait there besides ours, as of OTHERS_AT."""
OTHERS_AT: Final = 4
RUNNING: Final = 5
"""Requests in the engine."""
S_PER_TOKEN: Final = 6
"""Learned: seconds for each prompt token."""
S_FIXED: Final = 7
"""Learned: seconds that a first token takes besides."""
S_PER_RUNNING: Final = 8
"""Learned: seconds that each request in the engine adds."""
WAITING: Final = 9
"""Those of RUNNING that have no first token yet; more for a moment where the engine does not know one of
ours."""
COLUMNS: Final = 10

NO_TOKENS: Final[Floats] = np.zeros(0)


class Costs(NamedTuple):
    """(m,) each: `predicted` is the time to first token, s, `held_up` what is charged for the answers that
    the prompt holds up, s, `cost` their sum times the penalty, and `work` the prompt tokens to compute until
    the first token."""

    predicted: Floats
    held_up: Floats
    cost: Floats
    work: Floats


def costs(
    table: Floats,
    candidates: Candidates,
    tokens: float,
    now: float,
    cached: Floats | None = None,
    held_up_weight: float = 0.0,
) -> Costs:
    """The cost of a prompt of `tokens` at each candidate.

    `table` is (n, COLUMNS) by slot; `cached` (m,) are the tokens of the prompt that each cell holds
    already, None = none anywhere. A request that takes longer than it should by d makes the cell's queue
    longer by d: it has stalled, or is slower than was learned. While a prompt is computed the answers under
    way beside it hardly grow: a second of that for one of them counts as `held_up_weight` seconds.
    """
    lineup = candidates.lineup
    rows = table.take(lineup.slots, axis=0)
    # Columns side by side: operations on them are several times faster.
    pending, head, since, others, others_at, running, rate, fixed, each, waiting = np.ascontiguousarray(
        rows.T
    )
    head_s = head * rate
    waited = now - since
    backlog = pending * rate - np.minimum(np.maximum(waited, 0.0), head_s)
    foreign = np.maximum(others * rate - np.maximum(now - others_at, 0.0), 0.0)
    late = np.maximum(waited - head_s - fixed - foreign, 0.0)
    late *= pending > 0
    own = tokens * rate if cached is None else np.maximum(tokens - cached, 0.0) * rate
    working = backlog + foreign + own
    predicted = candidates.rtt_s + fixed + running * each + late + working
    held_up = own * np.maximum(running - waiting, 0.0) * held_up_weight
    return Costs(predicted, held_up, (predicted + held_up) * candidates.penalty, working / rate)
