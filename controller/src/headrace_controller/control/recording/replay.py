"""Scores a recording again, with its own parameters and with others, by the same code as a controller.

A recording from a controller's first moment gives its weights again exactly. One that begins later goes
on from each cell's score and evidence, and needs some seconds to agree.

The lifecycle's decisions are taken as recorded: who was READY when is not asked again. What is asked is
what the weights would have been.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace_controller.control.recording.entries import (
    VERSION,
    Entry,
    Evidence,
    Kind,
    Push,
    RecordingError,
)
from headrace_controller.control.recording.files import read_file
from headrace_controller.control.recording.report import Report, Row, Worst
from headrace_controller.control.recording.shares import Mean, Member, Split, greatest_difference
from headrace_controller.control.recording.told import read_intents, read_score, set_life
from headrace_controller.control.recording.variant import Parameters, Variant, settings_of
from headrace_controller.inventory import Fleet
from headrace_controller.inventory.columns import TOTAL_KINDS
from headrace_controller.projection import NO_INTENTS
from headrace_controller.settings import (
    PressureSettings,
    ProjectionSettings,
)
from headrace_pb.v1 import telemetry_pb2 as pb

SETTLE_S: Final = 5.0
"""What a file tells of the time before it lacks the figures of that moment: they come with the next
beats, and differences count from here on."""


@dataclass
class _Recorded:
    """What the recording says that gateways held."""

    names: dict[int, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    split: Split | None = None
    last: dict[Member, tuple[int, ...]] = field(default_factory=dict)
    pushes: int = 0

    def take(self, push: Push) -> None:
        """A push, by rows of the recording controller."""
        members = tuple(
            (self.names.get(row, f"row {row}"), self.models[pool])
            for row, pool in zip(push.row.tolist(), push.pool.tolist(), strict=True)
        )
        self.split = Split(members, push.pool.astype(np.int64), push.weights.astype(np.int64))
        self.last = {
            **self.last,
            **{m: tuple(w) for m, w in zip(members, push.weights.T.tolist(), strict=True)},
        }


class Replay:
    """Takes entries in order and keeps the account. `change` makes the other parameters of the recorded
    ones."""

    def __init__(
        self, scorer: str | None = None, projection: str | None = None, change: Parameters | None = None
    ) -> None:
        self._scorer = scorer
        self._projection = projection
        self._change = change
        self._fleet: Fleet | None = None
        self._run: Any = None
        self._ready = False
        self._told: set[str] = set()
        self._pending_scores: dict[str, Mapping[str, Any]] = {}
        self._intents = NO_INTENTS
        self._recorded = _Recorded()
        self._variants: tuple[Variant, Variant] | None = None
        self._began = self._last = math.nan
        self._offset = 0.0
        self._ticks = 0
        self._pushes = [0, 0]
        self._means = (Mean(), Mean())
        self._worst = self._fidelity = Worst()
        self.gateways: tuple[str, ...] = ()

    def take(self, entries: Iterable[Entry]) -> None:
        """Take a file's entries. Raises RecordingError."""
        for entry in entries:
            try:
                self._take(entry)
            except (KeyError, ValueError, TypeError, IndexError) as error:
                raise RecordingError(
                    f"an entry of kind {entry.kind.name} cannot be read: {error!r}"
                ) from error

    def report(self) -> Report:
        """What came of it. Raises RecordingError where nothing was scored."""
        if not self._ticks:
            raise RecordingError("nothing was scored in this recording: it is too short, or of a baseline")
        for mean in self._means:
            mean.settle()
        before, after = self._means
        members = sorted({*before.seconds, *after.seconds})
        return Report(
            seconds=self._offset + self._last - self._began,
            ticks=self._ticks,
            gateways=self.gateways,
            pushes_recorded=self._recorded.pushes,
            pushes_before=self._pushes[0],
            pushes_after=self._pushes[1],
            worst=self._worst,
            fidelity=self._fidelity,
            rows=tuple(
                Row(
                    *member,
                    share_before=before.of(member),
                    share_after=after.of(member),
                    weights_recorded=self._recorded.last.get(member, ()),
                    weights_before=before.last.get(member, ()),
                    weights_after=after.last.get(member, ()),
                )
                for member in members
            ),
        )

    def _take(self, entry: Entry) -> None:
        if entry.kind is Kind.OPEN:
            self._open(json.loads(entry.payload), entry.at)
            return
        fleet = self._fleet
        if fleet is None:
            raise RecordingError("this file does not begin as a recording does")
        match entry.kind:
            case Kind.HELLO:
                hello = pb.Hello.FromString(entry.payload)
                fleet.register(hello.node, hello.site, hello, entry.at)
            case Kind.BEAT:
                node, _, beat = entry.payload.partition(b"\0")
                fleet.apply(node.decode(), pb.Telemetry.FromString(beat), entry.at)
            case Kind.GONE:
                fleet.remove(entry.payload.decode())
            case Kind.PUSH:
                self._recorded.take(Push.unpack(entry.payload))
                self._compare_recorded(entry.at)
            case Kind.EVIDENCE:
                self._believe(fleet, Evidence.unpack(entry.payload, len(TOTAL_KINDS)))
            case Kind.READY:
                self._begin(fleet, entry.at)
            case _:
                self._take_words(fleet, entry, json.loads(entry.payload))

    def _take_words(self, fleet: Fleet, entry: Entry, told: Any) -> None:
        match entry.kind:
            case Kind.LIFE | Kind.CELL:
                self._live(fleet, told, entry.kind)
            case Kind.INTENTS:
                self._intents = read_intents(told)
            case Kind.MODELS:
                self._recorded.models = tuple(told)
            case Kind.TICK:
                self._tick(fleet, entry.at, told["reason"])

    def _open(self, told: Mapping[str, Any], at: float) -> None:
        if told["version"] != VERSION:
            raise RecordingError(f"it is of version {told['version']}; this program reads {VERSION}")
        self._told.clear()
        if (told["run"], told["settings"]) == self._run:
            # The next file of the same run: what it tells anew is known, unless some was lost between them.
            return
        self._end_run()
        self._run, self._ready = (told["run"], told["settings"]), False
        self.gateways = tuple(told["gateways"])
        settings = settings_of(told["settings"])
        self._fleet = Fleet(self.gateways, retention_s=settings.lifecycle.retention_s)
        self._variants = (
            Variant(self.gateways, settings.parameters, settings),
            Variant(self.gateways, self._changed(settings.parameters), settings),
        )
        self._recorded.names.clear()
        self._pending_scores.clear()
        self._intents = NO_INTENTS

    def _changed(self, recorded: Parameters) -> Parameters:
        chosen = self._change or recorded
        pressure, projection = chosen.pressure, chosen.projection
        if self._scorer is not None:
            pressure = PressureSettings.model_validate(pressure.model_dump() | {"scorer": self._scorer})
        if self._projection is not None:
            projection = ProjectionSettings.model_validate(
                projection.model_dump() | {"name": self._projection}
            )
        return Parameters(pressure, projection)

    def _live(self, fleet: Fleet, told: Mapping[str, Any], kind: Kind) -> None:
        self._told.add(str(told["cell"]))
        self._recorded.names[int(told["row"])] = str(told["cell"])
        row = set_life(fleet, told)
        if kind is Kind.CELL and row is not None and not self._ready:
            self._pending_scores[str(told["cell"])] = told

    def _believe(self, fleet: Fleet, evidence: Evidence) -> None:
        """Write what gateways reported, by rows of the recording controller."""
        for number, recorded in enumerate(evidence.row.tolist()):
            row = fleet.get(self._recorded.names.get(recorded, ""))
            if row is not None:
                fleet.gateway_evidence[row] = evidence.counts[number]
                fleet.gateway_told_at[row] = evidence.told_at[number]
        fleet.gateway_version += 1

    def _begin(self, fleet: Fleet, at: float) -> None:
        """Take up where the recording controller was when the file began."""
        for cell in fleet.cell_ids():
            if cell not in self._told:
                fleet.remove(cell)
        if self._ready or self._variants is None:
            return
        weights: dict[str, dict[str, dict[str, int]]] = {}
        split = self._recorded.split
        for (cell, model), told in self._recorded.last.items() if split is not None else ():
            weights.setdefault(cell, {})[model] = dict(zip(self.gateways, told, strict=True))
        for variant in self._variants:
            for cell, told_score in self._pending_scores.items():
                row = fleet.get(cell)
                if row is not None:
                    variant.model.restore(fleet, row, read_score(told_score), at)
            if not len(fleet):
                continue
            variant.projector.seed(fleet, weights, at, SETTLE_S)
            # What was true at the last push is not recorded: taken as pushed now, it is what is true now.
            variant.tick(fleet, at, True, self._intents)
            variant.pushes = 0
        self._ready = True
        self._began = self._last = at

    def _tick(self, fleet: Fleet, at: float, reason: str) -> None:
        if not self._ready or self._variants is None:
            return
        fleet.forget_pools(at)
        self._recorded.pushes += bool(reason)
        elapsed, self._last = max(0.0, at - self._last), at
        for number, variant in enumerate(self._variants):
            if variant.split is not None:
                self._means[number].add(variant.split, elapsed)
            pushes = variant.pushes
            variant.tick(fleet, at, reason in _FORCED, self._intents)
            self._pushes[number] += variant.pushes - pushes
        self._ticks += 1
        before, after = self._variants
        if at - self._began >= SETTLE_S and before.split is not None and after.split is not None:
            self._worst = self._worse(self._worst, before.split, after.split, at)

    def _compare_recorded(self, at: float) -> None:
        """The weights that were recorded beside the same ones computed again."""
        if self._variants is None or not self._ready or self._recorded.split is None:
            return
        if at - self._began < SETTLE_S:
            return
        before = self._variants[0].split
        if before is not None:
            self._fidelity = self._worse(self._fidelity, self._recorded.split, before, at)

    def _worse(self, known: Worst, a: Split, b: Split, at: float) -> Worst:
        difference, member, gateway = greatest_difference(a, b)
        if member is None or difference <= known.difference:
            return known
        return Worst(difference, *member, self.gateways[gateway], self._offset + at - self._began)

    def _end_run(self) -> None:
        if self._ready:
            self._offset += self._last - self._began


_FORCED: Final = frozenset({"lifecycle", "first"})


def replay_files(
    paths: Iterable[Path],
    scorer: str | None = None,
    projection: str | None = None,
    change: Parameters | None = None,
) -> Report:
    """Replay files in order. Raises RecordingError."""
    replay = Replay(scorer, projection, change)
    for path in paths:
        replay.take(read_file(path))
    return replay.report()
