"""The region at a glance, as the API's status and the live frames tell it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace_controller import __version__
from headrace_controller.admin.live.rows import Floats, Shares
from headrace_controller.admin.surface import Surface
from headrace_controller.control.fleet_view import Filter
from headrace_controller.control.view import PoolView, StatusView


@dataclass(frozen=True, slots=True)
class PathView:
    """One site as seen from one gateway. `rtt_ms` and `jitter_ms` are medians over its cells, null = not
    measured; `flow` is the share of the gateway's requests that the weights send there, a mean over pools."""

    site: str
    gateway: str
    rtt_ms: float | None
    jitter_ms: float | None
    flow: float


@dataclass(frozen=True, slots=True)
class RegionView:
    """Everything about the region that is not about one cell."""

    status: StatusView
    pools: tuple[PoolView, ...]
    paths: tuple[PathView, ...]


def status_of(surface: Surface) -> StatusView:
    """The region's status now."""
    views, loop = surface.views, surface.loop
    reason = views.not_ready()
    return StatusView(
        region=views.region,
        version=__version__,
        baseline=surface.baseline,
        published=loop.published is not None,
        warm_start=reason or "weights are published",
        ready=not reason,
        self_preservation=loop.self_preservation,
        shadow=loop.intents.shadow,
        frozen=loop.intents.frozen,
        tick_age_s=views.tick_age_s(),
        cells=len(loop.fleet),
        sites=views.sites(),
        gateways=views.gateways(),
        intents=surface.operators.standing(),
        intents_kept=surface.operators.kept,
        recording=surface.recording(),
    )


def region_of(surface: Surface, shares: Shares) -> RegionView:
    """The region now."""
    return RegionView(status_of(surface), surface.views.pools(), paths_of(surface, shares))


def paths_of(surface: Surface, shares: Shares) -> tuple[PathView, ...]:
    """Every site with cells, to every gateway."""
    fleet, views = surface.loop.fleet, surface.views
    found = []
    for site in views.sites():
        cells = views.matching(Filter(site=site.site)) if site.cells else ()
        rows = np.array([fleet.row(cell) for cell in cells], dtype=np.int64)
        rows = rows[rows < shares.total.shape[1]]
        for number, gateway in enumerate(fleet.gateways):
            found.append(
                PathView(
                    site=site.site,
                    gateway=gateway,
                    rtt_ms=_median(fleet.rtt_ms[rows, number]),
                    jitter_ms=_median(fleet.jitter_ms[rows, number]),
                    flow=round(float(shares.total[number, rows].sum()) / max(1, shares.pools), 6),
                )
            )
    return tuple(found)


def _median(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return round(float(np.median(known)), 3) if len(known) else None
