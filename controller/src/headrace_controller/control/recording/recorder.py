"""Records what the control loop hears and decides; the loop never waits for it."""

from __future__ import annotations

import json
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.recording.entries import VERSION, Entry, Evidence, Kind, Push
from headrace_controller.control.recording.files import DIRECTORY, Ring
from headrace_controller.control.recording.told import (
    change_of,
    hello_of,
    intents_of,
    life_of,
    score_of,
)
from headrace_controller.control.witness import Witness
from headrace_controller.lifecycle import LoggedTransition
from headrace_controller.pressure import Pressures
from headrace_controller.projection import Intents, Projected
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import Clock

QUEUE: Final = 16_384
SNAPSHOT_CELLS: Final = 100
"""So many cells are told at one tick after a file is begun: about a millisecond."""
FLUSH_S: Final = 2.0
RETRY_S: Final = 30.0
EARLY: Final = 0.8
CLOSE_S: Final = 0.5

_Job = tuple[Kind, float, Callable[[], bytes]]
_END: Final[_Job] = (Kind.OPEN, 0.0, bytes)


def _nothing(*_: object) -> None:
    return


class Recorder(Witness):
    """A witness of the control loop that writes a ring of files in `state_dir`.

    Each file begins with all that is known then, a few cells a tick, and goes on with what happens.
    Everything is handed to a thread, which makes bytes of it; when that cannot keep up, or the disk
    takes nothing, entries are dropped, counted by `on_lost(reason)`, and a new file is begun.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        clock: Clock,
        loop: ControlLoop,
        on_bytes: Callable[[int], None] = _nothing,
        on_lost: Callable[[str], None] = _nothing,
    ) -> None:
        assert settings.state_dir is not None, "a recording needs a place"
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._on_lost = on_lost
        self._run = clock.wall_ns()
        self._began = float("-inf")
        self._broken = True
        self._untold: deque[str] | None = None
        self._models: tuple[str, ...] | None = None
        self._beats: dict[str, float] = {}
        self._evidence_at = float("-inf")
        self._evidence_version = 0
        ring = Ring(settings.state_dir / DIRECTORY, settings.recording.max_bytes)
        self._writer = _Writer(ring, clock, on_bytes, on_lost)
        if not len(loop.fleet):
            # Nothing has happened yet: what follows is told from the very beginning.
            self._begin(clock.now())
            self._put(Kind.READY, clock.now(), bytes)
            self._untold = None

    @property
    def state(self) -> str:
        """In words for people."""
        return self._writer.trouble or "on"

    def close(self) -> None:
        """Write what is waiting, for CLOSE_S at most."""
        self._writer.close()

    def use(self, settings: ControllerSettings) -> None:
        """Other settings are in force from now on: they are told in a new file."""
        self._settings = settings
        self._broken = True

    # control.witness.Witness

    def greeted(self, hello: pb.Hello, now: float) -> None:
        self._put(Kind.HELLO, now, hello.SerializeToString)

    def told(self, node: str, telemetry: pb.Telemetry, now: float) -> None:
        if now - self._beats.get(node, float("-inf")) < self._least_interval_s():
            return
        self._beats[node] = now
        self._put(Kind.BEAT, now, lambda: node.encode() + b"\0" + telemetry.SerializeToString())

    def changed(self, entry: LoggedTransition) -> None:
        row = self._loop.fleet.get(entry.cell_id)
        if row is not None:
            told = life_of(self._loop.fleet, row) | change_of(entry)
            self._put(Kind.LIFE, self._clock.now(), lambda: _json(told))

    def forgotten(self, cell_id: str, now: float) -> None:
        self._put(Kind.GONE, now, cell_id.encode)

    def intended(self, intents: Intents, now: float) -> None:
        self._put(Kind.INTENTS, now, lambda: _json(intents_of(intents)))

    def scored(self, pressures: Pressures, projected: Projected, now: float) -> None:
        if not self._broken and self._untold is None:
            self._tell_tick(projected, now)
        if self._is_due(now):
            self._begin(now)
        if self._untold is not None:
            self._tell_cells(projected, now)

    def _is_due(self, now: float) -> bool:
        if self._untold is not None and not self._broken:
            return False
        if self._writer.trouble:
            return now - self._began >= RETRY_S
        old = now - self._began >= self._settings.recording.segment_s
        return self._broken or old or self._writer.full

    def _begin(self, now: float) -> None:
        """Begin a file: what is in force now, and then the cells."""
        settings = self._settings
        told = {
            "version": VERSION,
            "run": self._run,
            "region": settings.region,
            "wall_ns": self._clock.wall_ns(),
            "gateways": [gateway.id for gateway in settings.gateways],
            "settings": settings.model_dump(mode="json", include={"pressure", "projection", "lifecycle"})
            | {
                "gateway_trust_s": settings.gateway_reports.trust_s,
                "ttft_slos": {
                    model: pool.ttft_slo_s for model, pool in settings.pools.items() if pool.ttft_slo_s
                },
            },
        }
        self._began, self._broken, self._models = now, False, None
        self._evidence_at, self._evidence_version = float("-inf"), 0
        self._untold = deque(self._loop.fleet.nodes)
        self._beats = {node: at for node, at in self._beats.items() if node in self._loop.fleet.nodes}
        self._put(Kind.OPEN, now, lambda: _json(told))
        self.intended(self._loop.intents, now)

    def _tell_cells(self, projected: Projected, now: float) -> None:
        """Tell of some nodes' cells, and of the weights once all are told."""
        fleet, untold = self._loop.fleet, self._untold
        assert untold is not None, "a snapshot is under way"
        cells = 0
        while untold and cells < SNAPSHOT_CELLS:
            record = fleet.nodes.get(untold.popleft())
            if record is None:
                continue
            cells += 1 + len(record.cells)
            self._put(Kind.HELLO, now, hello_of(fleet, record).SerializeToString)
            for cell_id in record.cells:
                row = fleet.row(cell_id)
                told = life_of(fleet, row) | score_of(self._loop.model.record(fleet, row))
                self._put(Kind.CELL, now, partial(_json, told))
        if not untold:
            self._untold = None
            self._tell_push(projected, now)
            self._put(Kind.READY, now, bytes)

    def _tell_tick(self, projected: Projected, now: float) -> None:
        self._tell_evidence(now)
        reason = projected.reason if projected.plan is not None else ""
        self._put(Kind.TICK, now, lambda: _json({"reason": reason}))
        if projected.plan is not None:
            self._tell_push(projected, now)

    def _tell_evidence(self, now: float) -> None:
        """Tell what gateways reported since the last time."""
        fleet = self._loop.fleet
        if fleet.gateway_version == self._evidence_version:
            return
        told = fleet.gateway_told_at[: fleet.size]
        rows = np.flatnonzero(told >= self._evidence_at)
        self._evidence_version, self._evidence_at = fleet.gateway_version, now
        evidence = Evidence(rows, fleet.gateway_evidence[rows], told[rows])
        self._put(Kind.EVIDENCE, now, evidence.pack)

    def _tell_push(self, projected: Projected, now: float) -> None:
        models = projected.pools.models
        if models != self._models:
            self._models = models
            self._put(Kind.MODELS, now, lambda: _json(list(models)))
        push = Push(
            projected.row.astype(np.int32),
            projected.pool.astype(np.int32),
            projected.weights.astype(np.int32),
        )
        self._put(Kind.PUSH, now, push.pack)

    def _least_interval_s(self) -> float:
        """How far apart one node's beats are recorded. They come with jitter: one that is a little early is
        not the one to leave out."""
        return EARLY * len(self._loop.fleet.nodes) / self._settings.recording.max_beats_per_s

    def _put(self, kind: Kind, at: float, make: Callable[[], bytes]) -> None:
        if self._broken and kind is not Kind.OPEN:
            return
        if not self._writer.put((kind, at, make)):
            self._on_lost("queue")
            self._broken, self._untold = True, None


class _Writer:
    """The thread that makes bytes and writes them. `trouble` says why nothing is written, "" = it is;
    the next file is the next try. `full`: the file has its size."""

    def __init__(
        self, ring: Ring, clock: Clock, on_bytes: Callable[[int], None], on_lost: Callable[[str], None]
    ) -> None:
        self._ring = ring
        self._clock = clock
        self._on_bytes = on_bytes
        self._on_lost = on_lost
        self._queue: queue.Queue[_Job] = queue.Queue(QUEUE)
        self._flushed_at = clock.now()
        self._failing = False
        self._log = log.get("recording")
        self.trouble = ""
        self.full = False
        # A daemon: a disk that hangs must not hold up the end of the program.
        self._thread = threading.Thread(target=self._work, name="record", daemon=True)
        self._thread.start()

    def put(self, job: _Job) -> bool:
        """False where there is no room."""
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Write what is waiting, for CLOSE_S at most."""
        if self.put(_END):
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while True:
            try:
                job: _Job | None = self._queue.get(timeout=FLUSH_S)
            except queue.Empty:
                job = None
            try:
                if job is not None and job is not _END:
                    self._write(job)
                if job is None or job is _END or self._clock.now() - self._flushed_at >= FLUSH_S:
                    self._flush()
            except Exception as error:  # noqa: BLE001 - the thread must outlive whatever a disk does
                self._fail(error)
            if job is _END:
                self._end()
                return

    def _write(self, job: _Job) -> None:
        kind, at, make = job
        if kind is Kind.OPEN:
            self.full, self.trouble = False, ""
        if not self.trouble:
            self._ring.write(Entry(kind, at, make()))

    def _flush(self) -> None:
        self._flushed_at = self._clock.now()
        if not self.trouble:
            self._on_bytes(self._ring.flush())
            self.full = self._ring.full
            if self._failing:
                self._log.info("recorded again")
            self._failing = False

    def _end(self) -> None:
        try:
            self._ring.close()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """One line in the log a change."""
        self._on_lost("disk")
        if not self._failing:
            self._log.warning(
                "nothing is recorded: the disk refuses",
                error=str(error),
                again_in_s=RETRY_S,
                remedy="make state_dir a writable directory with free space, or set recording.enabled: false",
            )
        self._failing, self.trouble = True, f"stopped: {error}"


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
