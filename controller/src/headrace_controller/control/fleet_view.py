"""Makes the operator's views from the control loop's state, at the moment they are asked for.

Nothing here walks the whole fleet cell by cell: what is told of all cells is counted in columns, and
cells are viewed a page or a slice at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace_controller.control.cell_rows import CellRows
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.view import (
    CellDetail,
    CellView,
    DrainView,
    EventView,
    FleetView,
    GatewayView,
    PoolView,
    ServedModel,
    SiteView,
    TransitionView,
    iso_time,
)
from headrace_controller.inventory import Pools
from headrace_controller.lifecycle import CellLife, CellState
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.server import XdsServer
from headrace_controller.xds.status import GatewayStatus
from headrace_shared.clock import Clock

SLICE: Final = 64
"""So many cells are viewed without giving way: about a millisecond."""
STALLED_S: Final = 2.0
"""A control loop that has not turned for this long is not what readiness promises."""

_STATE_NAMES: Final = [""] + [CellState(number).name for number in range(1, len(CellState) + 1)]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which cells are meant; None = any."""

    site: str | None = None
    state: str | None = None
    model: str | None = None
    node: str | None = None


class _Index:
    """All cells in order, and their sites as numbers; made anew only when a cell came, went or moved."""

    def __init__(self, loop: ControlLoop) -> None:
        self._loop = loop
        self._of = (-1, -1)
        self.ids: tuple[str, ...] = ()
        self.rows: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.sites: tuple[str, ...] = ()
        self.site: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def now(self) -> _Index:
        """Itself, up to date."""
        fleet = self._loop.fleet
        version = (fleet.rows_version, fleet.addresses_version)
        if version != self._of:
            self._of = version
            self.ids = fleet.cell_ids()
            self.rows = np.array([fleet.row(cell_id) for cell_id in self.ids], dtype=np.int64)
            sites = [fleet.facts_of(row).site for row in self.rows.tolist()]
            self.sites = tuple(sorted(set(sites)))
            number = {site: n for n, site in enumerate(self.sites)}
            self.site = np.array([number[site] for site in sites], dtype=np.int64)
        return self


class Views:
    """What operators see of one control loop and one xDS server."""

    def __init__(self, settings: ControllerSettings, clock: Clock, loop: ControlLoop, xds: XdsServer) -> None:
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._xds = xds
        self._index = _Index(loop)
        self._lengths_of: tuple[Pools | None, int] = (None, -1)
        self._lengths: list[tuple[int, ...]] = []
        self.rows = CellRows(loop)

    @property
    def region(self) -> str:
        """This controller's region."""
        return self._settings.region

    def not_ready(self) -> str:
        """Why Envoys do not get weights from this controller now; "" where they do."""
        if self._loop.published is None:
            return "waiting for agents; Envoys keep what they hold"
        age = self.tick_age_s()
        if age > STALLED_S:
            return f"the control loop has not turned for {age:.1f} s; Envoys keep what they hold"
        return ""

    def tick_age_s(self) -> float:
        """Since the control loop turned last, s."""
        return max(0.0, self._clock.now() - self._loop.ticked_at)

    def matching(self, chosen: Filter) -> Sequence[str]:
        """The ids of the cells meant, in order."""
        index, fleet = self._index.now(), self._loop.fleet
        keep = np.ones(len(index.ids), dtype=np.bool_)
        if chosen.state is not None:
            number = CellState[chosen.state] if chosen.state in CellState.__members__ else -1
            keep &= fleet.state[index.rows] == number
        if chosen.site is not None:
            number = index.sites.index(chosen.site) if chosen.site in index.sites else -1
            keep &= index.site == number
        if chosen.model is not None or chosen.node is not None:
            marked = np.zeros(fleet.size, dtype=np.bool_)
            marked[self._rows_of(chosen)] = True
            keep &= marked[index.rows]
        return index.ids if keep.all() else [index.ids[at] for at in np.flatnonzero(keep).tolist()]

    def _rows_of(self, chosen: Filter) -> NDArray[np.int64]:
        """The rows of a model's or a node's cells, or of both."""
        fleet = self._loop.fleet
        pools = fleet.pools()
        rows = fleet.rows()
        if chosen.model is not None:
            rows = pools.row[pools.pool == pools.index.get(chosen.model, -1)]
        if chosen.node is not None:
            rows = np.intersect1d(rows, [fleet.row(cell) for cell in fleet.node_cells(chosen.node)])
        return rows.astype(np.int64)

    def slices(self, cell_ids: Sequence[str]) -> Iterator[list[CellView]]:
        """Views of the cells, a slice at a time; those that are gone by then are left out."""
        for start in range(0, len(cell_ids), SLICE):
            yield self.rows.views(cell_ids[start : start + SLICE], self._clock.now())

    def page(self, ids: Sequence[str], after: str, limit: int) -> tuple[Sequence[str], str | None]:
        """At most `limit` of the sorted `ids` above `after`, and where the next page begins."""
        start = bisect_right(ids, after) if after else 0
        page = ids[start : start + limit]
        return page, page[-1] if start + limit < len(ids) else None

    def fleet(self) -> FleetView:
        """The whole region at once: for few cells, and for tests."""
        ids = self._index.now().ids
        return replace(self.frame(len(ids), None), cells=tuple(self.rows.views(ids, self._clock.now())))

    def frame(self, total: int, following: str | None) -> FleetView:
        """A page of cells, without the cells."""
        reason = self.not_ready()
        return FleetView(
            region=self._settings.region,
            baseline=self._settings.baseline or "",
            published=self._loop.published is not None,
            warm_start=reason or "weights are published",
            self_preservation=self._loop.self_preservation,
            gateways=self.gateways(),
            cells=(),
            total=total,
            next=following,
        )

    def cell(self, cell_id: str) -> CellDetail:
        """One cell. Raises KeyError."""
        loop, now = self._loop, self._clock.now()
        row = loop.fleet.row(cell_id)
        facts, life = loop.fleet.facts_of(row), loop.book.life(cell_id)
        (view,) = self.rows.views([cell_id], now)
        return CellDetail(
            cell=view,
            served=tuple(ServedModel(each.id, each.max_model_len, each.base_model) for each in facts.models),
            gpus=tuple(gpu.uuid for gpu in facts.gpus),
            labels=dict(facts.labels),
            drain=_drain(life, now),
            history=tuple(self._history(life, now)),
            reports=dict(loop.reports.cell(cell_id)),
        )

    def state_of(self, cell_id: str) -> str:
        """A cell's state. Raises KeyError."""
        return self._loop.book.life(cell_id).state.name

    def events(self, limit: int) -> Sequence[EventView]:
        """The newest entries of the log, newest last."""
        return self._loop.events.newest(limit)

    def gateways(self) -> tuple[GatewayView, ...]:
        """Every gateway of the settings."""
        statuses = self._xds.status()
        return tuple(self._gateway(gateway.id, statuses[gateway.id]) for gateway in self._settings.gateways)

    def sites(self) -> tuple[SiteView, ...]:
        """Every site that has a cell, or that is cordoned."""
        index, cordoned = self._index.now(), self._loop.intents.cordoned_sites
        counts = _by_state(self._loop.fleet.state[index.rows], index.site, len(index.sites))
        views = [
            SiteView(site, sum(states.values()), states.get("READY", 0), states, site in cordoned)
            for site, states in zip(index.sites, counts, strict=True)
        ]
        views += [SiteView(site, 0, 0, {}, True) for site in cordoned.difference(index.sites)]
        return tuple(sorted(views, key=lambda view: view.site))

    def pools(self) -> tuple[PoolView, ...]:
        """Every pool that is known, by model."""
        fleet, index = self._loop.fleet, self._index.now()
        pools = fleet.pools()
        counts = _by_state(fleet.state[pools.row], pools.pool, len(pools.models))
        site_of_row = np.zeros(fleet.size, dtype=np.int64)
        site_of_row[index.rows] = index.site
        ready = fleet.state[pools.row] == CellState.READY
        flat = pools.pool[ready] * max(1, len(index.sites)) + site_of_row[pools.row[ready]]
        by_site = np.bincount(flat, minlength=len(pools.models) * max(1, len(index.sites)))
        by_site = by_site.reshape(len(pools.models), max(1, len(index.sites)))
        weights = self.rows.weights.now()[:, pools.row]
        lengths = self._lengths_by_pool()
        sums = [np.bincount(pools.pool, weights=each, minlength=len(pools.models)) for each in weights]
        return tuple(
            PoolView(
                model=model,
                cells=sum(counts[number].values()),
                ready=counts[number].get("READY", 0),
                states=counts[number],
                ready_by_site={
                    site: n for site, n in zip(index.sites, by_site[number].tolist(), strict=False) if n
                },
                weights={gw: int(each[number]) for gw, each in zip(fleet.gateways, sums, strict=True)},
                max_model_len=lengths[number],
                pinned_to=self._pinned(model),
            )
            for number, model in enumerate(pools.models)
        )

    def _lengths_by_pool(self) -> list[tuple[int, ...]]:
        """The different lengths of each pool's cells; made anew only when a cell came, went or changed."""
        fleet, pools = self._loop.fleet, self._loop.fleet.pools()
        if self._lengths_of[0] is not pools or self._lengths_of[1] != fleet.addresses_version:
            found: list[set[int]] = [set() for _ in pools.models]
            for row in fleet.rows().tolist():
                for each in fleet.facts_of(row).models:
                    if each.max_model_len is not None and each.id in pools.index:
                        found[pools.index[each.id]].add(each.max_model_len)
            self._lengths_of = (pools, fleet.addresses_version)
            self._lengths = [tuple(sorted(lengths)) for lengths in found]
        return self._lengths

    def _pinned(self, model: str) -> tuple[str, ...] | None:
        sites = self._loop.intents.pins.get(model)
        return None if sites is None else tuple(sorted(sites))

    def _gateway(self, gateway_id: str, status: GatewayStatus) -> GatewayView:
        return GatewayView(
            id=gateway_id,
            connected=status.connected,
            streams=status.streams,
            pushes=status.pushes,
            nacks=status.nacks,
            last_nack=status.last_nack.message if status.last_nack else "",
            versions={name: each.version for name, each in status.types.items()},
            acked={name: each.acked for name, each in status.types.items()},
            in_force=status.connected and all(each.in_force for each in status.types.values()),
            unknown=status.unknown,
        )

    def _history(self, life: CellLife, now: float) -> Iterator[TransitionView]:
        wall = self._clock.wall_ns() / 1e9 - now
        for each in life.history:
            before = each.before.name if each.before else ""
            yield TransitionView(iso_time(wall + each.at), before, each.to.name, each.event.value, each.cause)


def _drain(life: CellLife, now: float) -> DrainView | None:
    if life.drain is None:
        return None
    finished = life.state is CellState.TERMINATED
    remaining = 0.0 if finished else max(0.0, life.drain.deadline - now)
    return DrainView(life.drain.requested_by, life.drain.cause, remaining, finished)


def _by_state(state: NDArray[Any], group: NDArray[np.int64], groups: int) -> list[dict[str, int]]:
    """For each group, how many are in which state; states that nobody is in are left out."""
    width = len(_STATE_NAMES)
    counts = np.bincount(group * width + state, minlength=groups * width).reshape(groups, width)
    return [
        {name: count for name, count in zip(_STATE_NAMES, row, strict=True) if count and name}
        for row in counts.tolist()
    ]
