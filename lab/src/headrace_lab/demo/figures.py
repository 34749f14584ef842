"""The figures of a run, computed from its records and the weights seen meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace_lab.demo.observe import History
from headrace_lab.load.records import Record


@dataclass(frozen=True, slots=True)
class Incident:
    """The kill on the load's own time line, in seconds from its start.

    `blind_s` is how long Envoy went on holding the endpoint; None = it never let go of it.
    """

    cell: str
    at_s: float
    blind_s: float | None

    @property
    def over_s(self) -> float:
        """When new requests could no longer reach the killed engine."""
        return float("inf") if self.blind_s is None else self.at_s + self.blind_s


def was_in_flight(record: Record, incident: Incident) -> bool:
    """True for a request that was open at the kill and may have been on the killed engine.

    An engine that dies before its headers leaves no name behind, so an unnamed failure counts.
    """
    spans = record.sent_s <= incident.at_s <= record.ended_s
    return spans and record.cell in ("", incident.cell)


def cut_at_kill(records: Iterable[Record], incident: Incident) -> int:
    """Requests in flight on the killed engine that were lost."""
    return sum(not r.ok and was_in_flight(r, incident) for r in records)


def post_kill_success(records: Iterable[Record], incident: Incident) -> float | None:
    """Share of whole answers, 0 … 1, among the requests sent after the kill; None if there were none."""
    after = [r.ok for r in records if r.sent_s > incident.at_s]
    return sum(after) / len(after) if after else None


def unexplained(records: Iterable[Record], incident: Incident) -> list[Record]:
    """Failures neither in flight on the killed engine nor sent while Envoy still held it."""
    return [
        r
        for r in records
        if not r.ok and not was_in_flight(r, incident) and not incident.at_s < r.sent_s <= incident.over_s
    ]


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of one cell, 0 … 1: of the requests it got, and of those its weights promised."""

    actual: float
    expected: float

    @property
    def gap_points(self) -> float:
        """Their distance in percentage points."""
        return abs(self.actual - self.expected) * 100


def shares(
    records: Iterable[Record], history: History, start: float, cells: Sequence[str], incident: Incident | None
) -> dict[str, Shares]:
    """Actual and expected share of each cell.

    A request's expected share is its cell's weight over the sum of weights in force when it was
    sent (`start` puts the load on the clock of the history). Requests sent while a killed
    engine was still listed are left out, as are those that no cell answered.
    """
    got = dict.fromkeys(cells, 0)
    promised = dict.fromkeys(cells, 0.0)
    counted = 0
    for record in records:
        if record.cell not in got or (incident and incident.at_s < record.sent_s <= incident.over_s):
            continue
        sample = history.at(start + record.sent_s)
        weights = {} if sample is None else {c: v.weight for c, v in sample.cells.items() if c in got}
        total = sum(weights.values())
        if total <= 0:
            continue
        counted += 1
        got[record.cell] += 1
        for cell, weight in weights.items():
            promised[cell] += weight / total
    return {c: Shares(got[c] / counted, promised[c] / counted) for c in cells} if counted else {}


def widest_gap(found: dict[str, Shares]) -> float | None:
    """The largest gap in percentage points; None where nothing could be compared."""
    return max((s.gap_points for s in found.values()), default=None)
