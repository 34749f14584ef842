"""Keeps the fleet on disk as it changes."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace_controller.capability import BoundaryRecord
from headrace_controller.control.kept_fleet import (
    KeptBoundary,
    KeptCell,
    KeptClass,
    KeptDrain,
    KeptErrors,
    KeptFleet,
    KeptFleetStore,
    KeptModel,
)
from headrace_controller.control.loop import ControlLoop
from headrace_controller.inventory import CellFacts
from headrace_controller.lifecycle import CellLife, CellState
from headrace_controller.projection import Plan
from headrace_shared import log

INTERVAL_S = 1.0
FIGURES_S = 10.0
HUNG_AFTER_S = 10.0
SLICE = 200
"""So many cells are looked at before others have their turn: a few milliseconds."""
REST_FACTOR = 20.0
"""So many times as long as it took to look at all cells passes before that is done again."""


class _Mark(NamedTuple):
    """What has happened to a fleet, less what moves all the time: how often, of each kind."""

    plans: int
    rows: int
    facts: int
    lives: int
    boundaries: tuple[BoundaryRecord, ...]


class Keeper:
    """Writes the fleet at most once per `INTERVAL_S`, and only when it differs from the last one;
    where nothing but figures does (scores, evidence, distances), once per `FIGURES_S`.

    While nothing has happened no cell is looked at, and a large fleet a slice at a time. The disk may
    hang: each write has a thread of its own, which nobody waits for, and none is started before the last
    has ended. What is lost then is the warm start, never the traffic.
    """

    def __init__(self, store: KeptFleetStore, loop: ControlLoop, region: str) -> None:
        self._store = store
        self._loop = loop
        self._region = region
        self._written: KeptFleet | None = None
        self._mark: _Mark | None = None
        self._models: dict[int, tuple[CellFacts, tuple[KeptModel, ...]]] = {}
        self._writer: threading.Thread | None = None
        self._waited_s = 0.0
        self._aged_s = 0.0
        self._log = log.get("kept_fleet")

    async def run(self) -> None:
        """Keep writing until cancelled."""
        took_s = 0.0
        while True:
            rest_s = max(INTERVAL_S, REST_FACTOR * took_s)
            await asyncio.sleep(rest_s)
            took_s = 0.0
            if self._is_due(rest_s):
                mark, cells = self._mark_now(), []
                for each in self._slices():
                    begun = self._loop.now()
                    cells += each
                    took_s += self._loop.now() - begun
                    await asyncio.sleep(0)
                self._begin(self._fleet_of(cells), mark)

    def keep(self) -> None:
        """Begin to write the fleet if it changed and the last write has ended; returns at once."""
        if self._is_due(INTERVAL_S):
            mark = self._mark_now()
            fleet = self.snapshot()
            if fleet is not None:
                self._begin(fleet, mark)

    def _is_due(self, passed_s: float) -> bool:
        """Whether a fleet may be written now, and may differ from the last one."""
        if self._writer is not None and self._writer.is_alive():
            self._note_waiting(passed_s)
            return False
        self._waited_s = 0.0
        self._aged_s += passed_s
        mark = self._mark_now()
        return mark is not None and (mark != self._mark or self._aged_s >= FIGURES_S)

    def _mark_now(self) -> _Mark | None:
        """None before the first publication."""
        loop = self._loop
        if loop.published is None:
            return None
        fleet = loop.fleet
        records = loop.classes.records()
        return _Mark(loop.plans, fleet.rows_version, fleet.facts_version, loop.book.changes, records)

    def _begin(self, fleet: KeptFleet, mark: _Mark | None) -> None:
        figures = self._aged_s >= FIGURES_S
        # A daemon: the interpreter must not wait for it at its end.
        self._writer = threading.Thread(
            target=self._write, args=(fleet, mark, figures), name="keep fleet", daemon=True
        )
        self._writer.start()

    def _write(self, fleet: KeptFleet, mark: _Mark | None, figures: bool) -> None:
        """In its thread: write the fleet where it differs, in its `figures` too where these are due."""
        written = self._written
        same = written is not None and fleet.without_figures == written.without_figures
        if same and not (figures and fleet != written):
            self._mark = mark
            return
        self._aged_s = 0.0
        if self._store.save(fleet):
            self._written, self._mark = fleet, mark

    def _note_waiting(self, passed_s: float) -> None:
        before, self._waited_s = self._waited_s, self._waited_s + passed_s
        if before < HUNG_AFTER_S <= self._waited_s:
            self._log.warning(
                "the disk does not answer; the fleet is not kept until it does", waited_s=self._waited_s
            )

    def snapshot(self) -> KeptFleet | None:
        """The fleet as it would be kept now; None before the first publication."""
        if self._loop.published is None:
            return None
        return self._fleet_of([cell for each in self._slices() for cell in each])

    def _slices(self) -> Iterator[list[KeptCell]]:
        """All cells, SLICE at a time; those that are gone by then are left out."""
        ids, fleet = self._loop.fleet.cell_ids(), self._loop.fleet
        self._models = {row: known for row, known in self._models.items() if fleet.generation[row]}
        for start in range(0, len(ids), SLICE):
            yield [self._cell(cell_id) for cell_id in ids[start : start + SLICE] if cell_id in fleet]

    def _fleet_of(self, cells: Sequence[KeptCell]) -> KeptFleet:
        # What is made here needs no check: it is checked when it is read.
        return KeptFleet.model_construct(
            version=1,
            region=self._region,
            cells=tuple(cells),
            boundaries=tuple(
                KeptBoundary(
                    model=each.model, max_model_len=each.max_model_len, bytes_per_token=each.bytes_per_token
                )
                for each in self._loop.classes.records()
            ),
            classes=_classes(self._loop.published),
        )

    def _cell(self, cell_id: str) -> KeptCell:
        loop = self._loop
        row = loop.fleet.row(cell_id)
        facts, life = loop.fleet.facts_of(row), loop.book.life(cell_id)
        known = loop.model.record(loop.fleet, row)
        return KeptCell.model_construct(
            id=cell_id,
            node=facts.node,
            site=facts.site,
            host=facts.host,
            port=facts.port,
            engine_kind=facts.engine_kind,
            health_path=facts.health_path,
            tls=facts.tls,
            models=self._models_of(row, facts),
            ready=life.state is CellState.READY,
            weights=loop.weights_by_model(cell_id),
            scores=_finite(loop.fleet.gateways, known.base),
            speed=known.speed,
            reach=_finite(loop.fleet.gateways, known.reach),
            unloaded_ttft_s=known.unloaded_ttft_s if known.unloaded_ttft_s > 0 else None,
            errors=KeptErrors.model_construct(
                failed=known.errors.failed,
                total=known.errors.total,
                seen=known.errors.seen,
                plain=None if math.isnan(known.errors.plain) else known.errors.plain,
                counted=known.errors.counted,
            ),
            rtt_ms=_finite(loop.fleet.gateways, loop.fleet.last_rtt_ms[row].tolist()),
            drain=_drain(life, loop.now()),
        )

    def _models_of(self, row: int, facts: CellFacts) -> tuple[KeptModel, ...]:
        """The models of a cell; those made before where its facts are the same."""
        known = self._models.get(row)
        if known is None or known[0] is not facts:
            made = tuple(
                KeptModel(id=model.id, max_model_len=model.max_model_len, base_model=model.base_model)
                for model in facts.models
            )
            self._models[row] = known = facts, made
        return known[1]


def _classes(plan: Plan | None) -> tuple[KeptClass, ...]:
    """The weights of all capability classes."""
    found = []
    for model, classes in (plan.classes if plan is not None else {}).items():
        for shape, told in zip(plan.shape(model).classes if plan else (), classes, strict=True):
            weights: dict[str, dict[str, int]] = {}
            for gateway, endpoints in told.items():
                for cell_id, weight in zip(endpoints.cells.ids, endpoints.weights, strict=True):
                    weights.setdefault(cell_id, {})[gateway] = weight
            kept = KeptClass.model_construct(model=model, max_model_len=shape.max_model_len, weights=weights)
            found.append(kept)
    return tuple(found)


def _finite(gateways: Sequence[str], values: Iterable[float]) -> dict[str, float]:
    return {gateway: value for gateway, value in zip(gateways, values, strict=True) if math.isfinite(value)}


def _drain(life: CellLife, now: float) -> KeptDrain | None:
    """The drain that somebody asked for; that of a sleeping engine ends by itself."""
    if life.drain is None or not life.drained:
        return None
    return KeptDrain(
        requested_by=life.drain.requested_by,
        cause=life.drain.cause,
        target=life.drain.target,
        remaining_s=max(0.0, life.drain.deadline - now),
        finished=life.state is CellState.TERMINATED,
    )
