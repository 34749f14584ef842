"""One cell as seen from one gateway: from its signals to its pressure, and its weights."""

from __future__ import annotations

import math

import numpy as np

from headrace_controller.inventory import Fleet
from headrace_controller.pressure import Pressures
from headrace_controller.pressure.errors import compare
from headrace_controller.pressure.evidence import KINDS
from headrace_controller.pressure.ranges import ERROR
from headrace_controller.projection.explain.terms import (
    CellExplanation,
    EarlyTerm,
    ErrorTerm,
    SmoothingTerm,
    known,
)
from headrace_controller.projection.explain.weights import weights_of
from headrace_controller.projection.projector import Projected
from headrace_controller.settings import ProjectionSettings


def explain(
    fleet: Fleet,
    pressures: Pressures,
    projected: Projected,
    settings: ProjectionSettings,
    cell_id: str,
    gateway: str,
) -> CellExplanation | None:
    """The explanation of the tick that `pressures` and `projected` are of; None where the cell was
    not scored in it. Raises KeyError for an unknown cell, ValueError for an unknown gateway."""
    row, number = fleet.row(cell_id), fleet.gateways.index(gateway)
    if row >= len(pressures.generation) or pressures.generation[row] != fleet.generation[row]:
        return None
    early = pressures.early
    return CellExplanation(
        cell_id=cell_id,
        gateway=gateway,
        signals=pressures.explain(number, row),
        quorum=bool(pressures.quorum[number, row]),
        smoothing=_smoothing(pressures, number, row),
        error=_error(pressures, row),
        early=() if early is None else tuple(
            map(EarlyTerm, KINDS, early.charts[row].tolist(), early.alerts[row].tolist())
        ),
        early_added=0.0 if early is None else float(early.added[row]),
        raw=float(pressures.raw[number, row]),
        pressure=float(pressures.pressure[number, row]),
        weights=weights_of(fleet, pressures, projected, settings, number, row),
    )  # fmt: skip


def _smoothing(pressures: Pressures, gateway: int, row: int) -> SmoothingTerm:
    found, at = pressures.smoothing, (gateway, row)
    settled = found.settled
    return SmoothingTerm(
        mean=known(found.mean[at]),
        before=known(found.before[at]),
        aim=known(found.aim[at]),
        step=found.step,
        jumped=bool(found.as_is[at]),
        smoothed=known(found.smoothed[at]),
        settled_before=known(settled.before[at]),
        gain=float(settled.gain[at]),
        taken=bool(settled.taken[at]),
        shifted=bool(settled.shifted[at]),
        slow=known(settled.slow[at]),
        swing=float(settled.swing[at]),
        settled=known(settled.base[at]),
        decayed=0.0 if found.decayed is None else float(found.decayed[at]),
        median=None if found.median is None else known(found.median[at]),
        base=float(found.base[at]),
    )


def _error(pressures: Pressures, row: int) -> ErrorTerm:
    """The comparison in the pool where the cell is worst."""
    pools = pressures.pools
    compared = compare(pressures.error_estimate, pressures.error_samples, pools, pressures.ready)
    own = np.flatnonzero(pools.row == row)
    over = np.nan_to_num(compared.over[own], nan=-math.inf)
    worst = int(own[int(over.argmax())]) if len(own) else None
    by_gateways = pressures.errors_by_gateways
    return ErrorTerm(
        estimate=known(pressures.error_estimate[row]),
        samples=float(pressures.error_samples[row]),
        others=None if worst is None else known(compared.others[worst]),
        chance=None if worst is None else known(compared.chance[worst]),
        excess=known(pressures.error_excess[row]),
        low=float(pressures.ranges.low[ERROR]),
        high=float(pressures.ranges.high[ERROR]),
        normalised=known(pressures.errors[row]) or 0.0,
        source="agent" if by_gateways is None or not by_gateways[row] else "gateways",
    )
