"""Cells over several nodes: each node tells of its own GPUs, and the cell has the worst of all.

The node with the engine's address, the head, speaks for the cell. The nodes that it names are its
members and add their GPUs' figures and faults. A member that falls silent leaves the fold and marks
the cell; that alone says nothing of the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace_controller.ingest.reading import read_member
from headrace_controller.inventory import beats
from headrace_controller.inventory.columns import NEVER, Columns
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS, GPU_SIGNALS

STALE_S: Final = 5.0
"""Figures that were read longer ago than this are left out of the fold."""
GRACE_S: Final = 5.0
"""A member that was just named has this long to report: agents find a controller within 2 s."""

_GPU_AT: Final = [CELL_SIGNALS.index(name) for name in GPU_SIGNALS]


@dataclass(slots=True)
class Figures:
    """What one node last said of its GPUs under a cell; `signals` in the order of GPU_SIGNALS, NaN =
    absent. `read_at` is NaN where no age was given."""

    signals: Sequence[float] = (math.nan,) * len(GPU_SIGNALS)
    told_at: float = NEVER
    read_at: float = math.nan
    stale: bool = False
    source: int = pb.HARDWARE_SOURCE_UNSPECIFIED
    gpu_lost: bool = False

    @property
    def any(self) -> bool:
        """Whether there is any figure."""
        return not all(map(math.isnan, self.signals))

    def fresh(self, now: float) -> bool:
        """Whether they still say how the GPUs are."""
        return not (self.stale or now - self.told_at > STALE_S or now - self.read_at > STALE_S)


@dataclass(slots=True)
class Member:
    """One node that a cell's head names. `heard_at`: last sign of life as a member of this cell;
    `late_at`: the controller's own lateness summed up to then. `hold_until`: a planned goodbye's end.
    """

    node: str
    named_at: float
    heard_at: float = NEVER
    late_at: float = 0.0
    hold_until: float = NEVER
    lost: bool = False
    last_xid: int = -1
    figures: Figures = field(default_factory=Figures)


@dataclass(slots=True)
class Crew:
    """A cell's head and members. `fault_node` is the member whose GPU failed last, "" = the head."""

    cell_id: str
    head: Figures = field(default_factory=Figures)
    head_has_gpus: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    fault_node: str = ""


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A member that fell silent, or one that reports again."""

    cell_id: str
    node: str
    lost: bool


class Crews:
    """The crews of all cells that have members, by row. Writes the folded figures into the columns.

    `heard(node, cell_id)` tells when a node gave its last sign of life as a member of the cell, −inf
    where it never did.
    """

    def __init__(self, columns: Columns, heard: Callable[[str, str], float]) -> None:
        self._columns = columns
        self._heard = heard
        self._crews: dict[int, Crew] = {}
        self._late_total = 0.0

    def name(self, row: int, cell_id: str, nodes: Sequence[str], head_has_gpus: bool, now: float) -> None:
        """Take the head's list of members; one that stays on it keeps what it said."""
        crew = self._crews.get(row)
        if crew is None:
            if not nodes:
                return
            crew = self._crews[row] = Crew(cell_id, self._read_head(row))
        crew.head_has_gpus = head_has_gpus
        crew.members = {node: crew.members.get(node) or Member(node, now) for node in nodes}
        self._fold(row, now)
        if not nodes:
            del self._crews[row]

    def forget(self, row: int) -> None:
        """The row's cell is gone."""
        self._crews.pop(row, None)

    @property
    def any(self) -> bool:
        """Whether any cell has members."""
        return bool(self._crews)

    def members(self, row: int) -> tuple[Member, ...]:
        """The members of a row's cell, in the order in which its head names them."""
        crew = self._crews.get(row)
        return tuple(crew.members.values()) if crew is not None else ()

    def has_member(self, row: int, node: str) -> bool:
        """Whether the head of the row's cell names the node."""
        crew = self._crews.get(row)
        return crew is not None and node in crew.members

    def fault_node(self, row: int) -> str:
        """The member on which the row's last hardware fault happened; "" = the head's own."""
        crew = self._crews.get(row)
        return crew.fault_node if crew is not None else ""

    def head_told(self, row: int, beat: pb.CellBeat, now: float) -> None:
        """The head's beat has just been written into the row: fold the members' figures in."""
        crew = self._crews.get(row)
        if crew is None:
            return
        lost = beat.hardware.gpu_lost if beat.HasField("hardware") else crew.head.gpu_lost
        crew.head = self._read_head(row)
        self._set_lost(crew, crew.head, lost, "")
        if self._columns.new_xid[row] and beat.hardware.last_xid == self._columns.new_xid[row]:
            crew.fault_node = ""
        self._fold(row, now)

    def member_told(self, row: int, node: str, beat: pb.MemberBeat, now: float) -> None:
        """Take a member's beat."""
        crew = self._crews[row]
        member = crew.members[node]
        before, figures = member.figures, read_member(beat)
        lost = beat.hardware.gpu_lost if beat.HasField("hardware") else before.gpu_lost
        member.hold_until = NEVER
        member.figures = Figures(
            figures.signals, now, now - figures.age_ms / 1000, figures.stale, figures.source
        )
        self._set_lost(crew, member.figures, lost, node)
        if beat.HasField("hardware"):
            self._note_xid(row, crew, member, figures.xid, beats.outage_start(before.told_at, now))
        self._fold(row, now)

    def note_fault(self, row: int, node: str, event: pb.CellEvent, now: float) -> None:
        """Take what an immediate event says of a GPU; `node` "" = the head's."""
        crew = self._crews.get(row)
        if crew is None:
            return
        crew.fault_node = node
        if event.kind == pb.CELL_EVENT_KIND_GPU_LOST:
            (crew.members[node].figures if node else crew.head).gpu_lost = True
        elif node and event.HasField("xid"):
            crew.members[node].last_xid = event.xid
        self._fold(row, now)

    def hold(self, node: str, rows: Sequence[int], until: float) -> None:
        """A member leaves on purpose: what it said last counts until it is back, or until then."""
        for row in rows:
            crew = self._crews.get(row)
            if crew is not None and node in crew.members:
                crew.members[node].hold_until = until

    def judge(self, now: float, ttl_s: float, lateness: float) -> tuple[MemberChange, ...]:
        """Find who fell silent and who is back; `lateness` is how late this loop itself is, s."""
        self._late_total += lateness
        changes = []
        for row, crew in self._crews.items():
            for member in crew.members.values():
                heard = self._heard(member.node, crew.cell_id)
                if heard > member.heard_at:
                    # A sign of life read before this tick's stall has the stall taken off, as in
                    # lifecycle.silence; one read after it has not.
                    stalled = lateness if heard <= now - lateness else 0.0
                    member.heard_at, member.late_at = heard, self._late_total - stalled
                lost = self._is_lost(member, now, ttl_s)
                if lost != member.lost:
                    member.lost = lost
                    changes.append(MemberChange(crew.cell_id, member.node, lost))
                    self._fold(row, now)
        return tuple(changes)

    def _is_lost(self, member: Member, now: float, ttl_s: float) -> bool:
        if now < member.hold_until:
            return False
        if member.heard_at == NEVER:
            return now - member.named_at > GRACE_S
        return now - member.heard_at - (self._late_total - member.late_at) > ttl_s

    def _read_head(self, row: int) -> Figures:
        columns = self._columns
        return Figures(
            columns.signals[row, _GPU_AT].tolist(),
            float(columns.telemetry_at[row]),
            float(columns.hardware_read_at[row]),
            bool(columns.hardware_stale[row]),
            int(columns.hardware_source[row]),
            bool(columns.gpu_lost[row]),
        )

    def _set_lost(self, crew: Crew, figures: Figures, lost: bool, node: str) -> None:
        figures.gpu_lost = lost
        if lost:
            crew.fault_node = node

    def _note_xid(self, row: int, crew: Crew, member: Member, xid: int, since: float) -> None:
        columns = self._columns
        if member.last_xid not in (-1, xid) and xid:
            if columns.new_xid[row]:
                return  # one at a time: the next beat names it again
            columns.new_xid[row], columns.xid_at[row] = xid, since
            crew.fault_node = member.node
        if xid or member.last_xid == -1:
            member.last_xid = xid

    def _fold(self, row: int, now: float) -> None:
        """Write the worst of the head's and the members' fresh figures into the row."""
        columns, crew = self._columns, self._crews[row]
        present = [member for member in crew.members.values() if not member.lost]
        parts = [each.figures for each in present if now < each.hold_until or each.figures.fresh(now)]
        parts += [crew.head] if crew.head.fresh(now) else []
        parts = [part for part in parts if part.any]
        for number, at in enumerate(_GPU_AT):
            columns.signals[row, at] = _worst([part.signals[number] for part in parts])
        columns.hardware_source[row] = _weakest(parts, crew.head.source)
        columns.hardware_read_at[row] = min(
            (part.read_at for part in parts if not math.isnan(part.read_at)), default=crew.head.read_at
        )
        columns.hardware_stale[row] = crew.head.stale and not parts
        columns.gpu_lost[row] = crew.head.gpu_lost or any(each.figures.gpu_lost for each in present)
        columns.member_lost[row] = len(present) < len(crew.members)
        columns.hardware_partial[row] = bool(parts) and len(parts) < len(present) + crew.head_has_gpus


def _worst(values: Sequence[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _weakest(parts: Sequence[Figures], otherwise: int) -> int:
    """The source that the cell's figures are marked with: the stand-in where any of them is one."""
    sources = {part.source for part in parts}
    for source in (pb.HARDWARE_SOURCE_NVML, pb.HARDWARE_SOURCE_DCGM):
        if source in sources:
            return source
    return otherwise
