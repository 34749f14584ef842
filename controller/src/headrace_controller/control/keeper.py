"""Keeps the fleet on disk as it changes."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterable, Sequence

from headrace_controller.control.kept_fleet import (
    KeptBoundary,
    KeptCell,
    KeptDrain,
    KeptErrors,
    KeptFleet,
    KeptFleetStore,
    KeptModel,
)
from headrace_controller.control.loop import ControlLoop
from headrace_controller.lifecycle import CellLife, CellState
from headrace_shared import log

INTERVAL_S = 1.0
FIGURES_S = 10.0
HUNG_AFTER_S = 10.0


class Keeper:
    """Writes the fleet at most once per `INTERVAL_S`, and only when it differs from the last one;
    where nothing but figures does (scores, evidence, distances), once per `FIGURES_S`.

    The disk may hang: each write has a thread of its own, which nobody waits for, and none is
    started before the last has ended. What is lost then is the warm start, never the traffic.
    """

    def __init__(self, store: KeptFleetStore, loop: ControlLoop, region: str) -> None:
        self._store = store
        self._loop = loop
        self._region = region
        self._written: KeptFleet | None = None
        self._writer: threading.Thread | None = None
        self._waited_s = 0.0
        self._aged_s = 0.0
        self._log = log.get("kept_fleet")

    async def run(self) -> None:
        """Keep writing until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.keep()

    def keep(self) -> None:
        """Begin to write the fleet if it changed and the last write has ended; returns at once."""
        if self._writer is not None and self._writer.is_alive():
            self._note_waiting()
            return
        self._waited_s = 0.0
        self._aged_s += INTERVAL_S
        fleet = self.snapshot()
        if fleet is None or not self._differs(fleet):
            return
        self._aged_s = 0.0
        # A daemon: the interpreter must not wait for it at its end.
        self._writer = threading.Thread(target=self._write, args=(fleet,), name="keep fleet", daemon=True)
        self._writer.start()

    def _differs(self, fleet: KeptFleet) -> bool:
        written = self._written
        if written is None or fleet.without_figures != written.without_figures:
            return True
        return self._aged_s >= FIGURES_S and fleet != written

    def _write(self, fleet: KeptFleet) -> None:
        if self._store.save(fleet):
            self._written = fleet

    def _note_waiting(self) -> None:
        before, self._waited_s = self._waited_s, self._waited_s + INTERVAL_S
        if before < HUNG_AFTER_S <= self._waited_s:
            self._log.warning(
                "the disk does not answer; the fleet is not kept until it does", waited_s=self._waited_s
            )

    def snapshot(self) -> KeptFleet | None:
        """The fleet as it would be kept now; None before the first publication."""
        if self._loop.published is None:
            return None
        fleet = self._loop.fleet
        return KeptFleet(
            region=self._region,
            cells=tuple(self._cell(cell_id) for cell_id in fleet.cell_ids()),
            boundaries=tuple(
                KeptBoundary(
                    model=each.model, max_model_len=each.max_model_len, bytes_per_token=each.bytes_per_token
                )
                for each in self._loop.classes.records()
            ),
        )

    def _cell(self, cell_id: str) -> KeptCell:
        loop = self._loop
        row = loop.fleet.row(cell_id)
        facts, life = loop.fleet.facts_of(row), loop.book.life(cell_id)
        known = loop.model.record(loop.fleet, row)
        return KeptCell(
            id=cell_id,
            node=facts.node,
            site=facts.site,
            host=facts.host,
            port=facts.port,
            engine_kind=facts.engine_kind,
            health_path=facts.health_path,
            tls=facts.tls,
            models=tuple(
                KeptModel(id=model.id, max_model_len=model.max_model_len, base_model=model.base_model)
                for model in facts.models
            ),
            ready=life.state is CellState.READY,
            weights=loop.weights_by_model(cell_id),
            scores=_finite(loop.fleet.gateways, known.base),
            unloaded_ttft_s=known.unloaded_ttft_s if known.unloaded_ttft_s > 0 else None,
            errors=KeptErrors(
                failed=known.errors.failed,
                total=known.errors.total,
                seen=known.errors.seen,
                plain=None if math.isnan(known.errors.plain) else known.errors.plain,
                counted=known.errors.counted,
            ),
            rtt_ms=_finite(loop.fleet.gateways, loop.fleet.last_rtt_ms[row].tolist()),
            drain=_drain(life, loop.now()),
        )


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
