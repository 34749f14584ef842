"""The fleet: who speaks for which cell, and what was said last, in arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from headrace_controller.ingest.reading import Reading, read_beat
from headrace_controller.inventory import beats
from headrace_controller.inventory.changes import (
    CellAdded,
    CellChanged,
    CellReturned,
    CellTakenOver,
    CellWithdrawn,
    Change,
)
from headrace_controller.inventory.columns import NEVER, Columns, Ints
from headrace_controller.inventory.facts import CellFacts, read_facts, read_gpus, same_for_gateways
from headrace_controller.inventory.members import Crews
from headrace_controller.inventory.nodes import NodeRecord, Nodes, span
from headrace_controller.inventory.pools import Memberships, ModelNames, Pools
from headrace_pb.v1 import telemetry_pb2 as pb

_ENGINE_EVENTS: Final[dict[int, int]] = {
    pb.CELL_EVENT_KIND_ENGINE_DOWN: pb.ENGINE_STATE_DOWN,
    pb.CELL_EVENT_KIND_ENGINE_LOADING: pb.ENGINE_STATE_LOADING,
    pb.CELL_EVENT_KIND_ENGINE_SERVING: pb.ENGINE_STATE_SERVING,
    pb.CELL_EVENT_KIND_ENGINE_HUNG: pb.ENGINE_STATE_HUNG,
    pb.CELL_EVENT_KIND_ENGINE_SLEEPING: pb.ENGINE_STATE_SLEEPING,
}
_GPU_EVENTS: Final = frozenset({pb.CELL_EVENT_KIND_XID, pb.CELL_EVENT_KIND_GPU_LOST})
HISTORY_MS: Final = 1000
RETENTION_S: Final = 600.0


def is_old(event: pb.CellEvent) -> bool:
    """True for an event that was told too late to be news: the next beat tells the state better."""
    return event.age_ms > HISTORY_MS


class Fleet(Columns):
    """All known cells. Single-threaded; takes messages that ingest has validated.

    A node speaks only for its own cells, and as a member for those whose own node names it: figures
    and events for others are ignored and reported back to the caller. A pool that no cell names any
    more is known for `retention_s` more, so that its requests get a 503 and not at once a 404.
    """

    def __init__(self, gateways: Sequence[str], retention_s: float = RETENTION_S) -> None:
        super().__init__(len(gateways))
        self.gateways = tuple(gateways)
        self.nodes = Nodes()
        self.crews = Crews(self, self._heard_as_member)
        self._gateway_index = {gateway: number for number, gateway in enumerate(self.gateways)}
        self.retention_s = retention_s
        self._rows: dict[str, int] = {}
        self._facts: dict[int, CellFacts] = {}
        self._withdrawn: set[str] = set()
        self._models = ModelNames()
        self._memberships = Memberships()
        self.addresses_version = 1
        """Rises whenever gateways would be told something new of a cell."""
        self.facts_version = 1
        """Rises whenever any fact of a cell is another one."""
        self._pools: Pools | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, cell_id: object) -> bool:
        return cell_id in self._rows

    def row(self, cell_id: str) -> int:
        """The cell's row. Raises KeyError."""
        return self._rows[cell_id]

    def get(self, cell_id: str) -> int | None:
        """The cell's row, None where the cell is not known."""
        return self._rows.get(cell_id)

    def facts_of(self, row: int) -> CellFacts:
        """The static facts of the cell in a row. Raises KeyError where the row is not in use."""
        return self._facts[row]

    @property
    def model_numbers(self) -> Mapping[str, int]:
        """Every model that has a pool → the number of the pool, which it keeps while it is known."""
        return self._models.ids

    def cell_ids(self) -> tuple[str, ...]:
        """Every known cell, sorted."""
        return tuple(sorted(self._rows))

    def rows(self) -> Ints:
        """The rows in use, in rising order."""
        return np.flatnonzero(self.generation[: self.size])

    def node_cells(self, node: str) -> tuple[str, ...]:
        """The cells that a node speaks for; none for an unknown node."""
        record = self.nodes.get(node)
        return tuple(record.cells) if record else ()

    def is_withdrawn(self, cell_id: str) -> bool:
        """True when the cell's node does not name it any more."""
        return cell_id in self._withdrawn

    def withdrawn_rows(self) -> list[int]:
        """The rows of all cells that their nodes do not name any more."""
        return [self._rows[cell_id] for cell_id in self._withdrawn]

    def register(self, node: str, site: str, hello: pb.Hello, now: float) -> list[Change]:
        """Take a node's Hello as the new truth about its cells.

        `node` and `site` are the verified identity, whatever the message says, and the node may
        have what it names: a cell of another node is taken over. An entry without models keeps the
        models known before (and so does one without a health path): an engine that is not up cannot
        name them, and its pool must not turn into a 404 meanwhile.
        """
        known = self.nodes.get(node)
        restarted = known is not None and known.incarnation != hello.incarnation
        record = NodeRecord(node, site, hello.incarnation, hello.agent_version, now)
        record.members = {each.cell_id: read_gpus(each.gpus) for each in hello.members}
        changes: list[Change] = []
        for cell in hello.cells:
            if cell.cell_id not in record.cells:
                changes += self._take(read_facts(node, site, cell), restarted, now)
                record.cells.append(cell.cell_id)
        gone = [cell_id for cell_id in (known.cells if known else ()) if cell_id not in record.cells]
        self._withdrawn.update(gone)
        changes += [CellWithdrawn(cell_id) for cell_id in gone]
        self._index(record)
        self.touch(node, now)
        return changes

    def touch(self, node: str, now: float) -> None:
        """Note a sign of life of a node and so of its cells; nothing for an unknown node."""
        record = self.nodes.get(node)
        if record is not None:
            record.heard_at = now
            self.last_heard[record.rows] = now

    def apply(
        self, node: str, telemetry: pb.Telemetry, now: float, reading: Reading | None = None
    ) -> list[str]:
        """Write a telemetry beat, which names each cell once, into the arrays; returns the ids that are not
        this node's. `reading` is what was read of it already."""
        record = self.nodes.get(node)
        if record is None:
            return [beat.cell_id for beat in telemetry.cells] + [each.cell_id for each in telemetry.members]
        self.touch(node, now)
        strangers = self._write_cells(record, telemetry, reading or read_beat(telemetry), now)
        for member in telemetry.members:
            row = self._member_row(node, member.cell_id)
            if row is None:
                strangers.append(member.cell_id)
            else:
                self.crews.member_told(row, node, member, now)
        for path in telemetry.paths:
            gateway = self._gateway_index.get(path.gateway)
            if gateway is not None:
                beats.write_path(self, record.rows, gateway, path, now)
        return strangers

    def _write_cells(
        self, record: NodeRecord, telemetry: pb.Telemetry, reading: Reading, now: float
    ) -> list[str]:
        """Write the cells that are the node's; the ids of those that are not."""
        ids, row_of, strangers = reading.ids, record.row_of, []
        if ids == record.cells:
            rows, listed = record.rows, record.listed
        else:
            own = [at for at, cell_id in enumerate(ids) if cell_id in row_of]
            if len(own) < len(ids):
                strangers = [cell_id for cell_id in ids if cell_id not in row_of]
                reading = reading.take(own)
            listed = [row_of[cell_id] for cell_id in reading.ids]
            rows = span(listed)
        if not listed:
            return strangers
        beats.write_cells(self, rows, listed, reading, now)
        if self.crews.any:
            for beat in telemetry.cells:
                row = row_of.get(beat.cell_id)
                if row is not None:
                    self.crews.head_told(row, beat, now)
        return strangers

    def note_event(self, node: str, event: pb.CellEvent, now: float) -> bool:
        """Write what an immediate event says into the arrays.

        False, and nothing is written, where the cell is not this node's, and where an engine's word
        is so old that the next beat tells better.
        """
        row = self._own_row(node, event.cell_id)
        if row is None:
            return self._note_member_event(node, event, now)
        if event.kind in _ENGINE_EVENTS and is_old(event):
            return False
        self.touch(node, now)
        if event.kind in _ENGINE_EVENTS:
            self.engine_state[row] = _ENGINE_EVENTS[event.kind]
            self.engine_at[row] = now
            if event.kind != pb.CELL_EVENT_KIND_ENGINE_SERVING:
                self.serving_ms[row] = 0.0
        elif event.kind == pb.CELL_EVENT_KIND_XID and event.HasField("xid"):
            self.last_xid[row] = event.xid
            self.crews.note_fault(row, "", event, now)
        elif event.kind == pb.CELL_EVENT_KIND_GPU_LOST and not is_old(event):
            self.gpu_lost[row] = True
            self.crews.note_fault(row, "", event, now)
        return True

    def _note_member_event(self, node: str, event: pb.CellEvent, now: float) -> bool:
        row = self._member_row(node, event.cell_id)
        if row is None or event.kind not in _GPU_EVENTS:
            return False
        self.touch(node, now)
        if event.kind == pb.CELL_EVENT_KIND_XID or not is_old(event):
            self.crews.note_fault(row, node, event, now)
        return True

    def hold_members(self, node: str, until: float) -> None:
        """The node leaves on purpose: what it said as a member counts until then, or until it is back."""
        record = self.nodes.get(node)
        if record is not None:
            rows = [row for cell_id in record.members if (row := self.get(cell_id)) is not None]
            self.crews.hold(node, rows, until)

    def forget_engine_word(self, row: int) -> None:
        """Drop what was said of the engine, until its agent says it anew."""
        self.engine_state[row] = 0
        self.engine_at[row] = -np.inf

    def remove(self, cell_id: str) -> None:
        """Forget a cell and free its row; nothing for an unknown cell."""
        row = self._rows.pop(cell_id, None)
        if row is None:
            return
        facts = self._facts.pop(row)
        self._release(facts)
        self._withdrawn.discard(cell_id)
        self._models.unname(facts.model_ids, float(self.last_heard[row]))
        self._memberships.remove(cell_id, facts.model_ids)
        self.crews.forget(row)
        self.free_row(row)
        self._changed()

    def forget_pools(self, now: float) -> None:
        """Forget the pools that no cell has named for the retention."""
        if self._models.forget(now, self.retention_s):
            self._changed()

    def forget_nodes(self, now: float) -> None:
        """Forget the nodes without cells that were not heard for the retention."""
        self.nodes.forget(now, self.retention_s)

    def pools(self) -> Pools:
        """The pools of all known cells, and those that one named within the retention. Built anew
        only after a change of models."""
        if self._pools is None:
            self._pools = self._memberships.pools(self._models.ids)
        return self._pools

    def _own_row(self, node: str, cell_id: str) -> int | None:
        record = self.nodes.get(node)
        return record.row_of.get(cell_id) if record is not None else None

    def _member_row(self, node: str, cell_id: str) -> int | None:
        """The row of a cell of which the node is a member: it says so, and so does the cell's own node."""
        row, record = self._rows.get(cell_id), self.nodes.get(node)
        if row is None or record is None or cell_id not in record.members:
            return None
        if cell_id in self._withdrawn or not self.crews.has_member(row, node):
            return None
        return row

    def _heard_as_member(self, node: str, cell_id: str) -> float:
        record = self.nodes.get(node)
        return record.heard_at if record is not None and cell_id in record.members else NEVER

    def _take(self, facts: CellFacts, restarted: bool, now: float) -> list[Change]:
        row = self._rows.get(facts.cell_id)
        if row is None:
            self._rows[facts.cell_id] = row = self.take_row()
            self._set_facts(row, facts, now)
            return [CellAdded(facts.cell_id)]
        old = self._facts[row]
        withdrawn = facts.cell_id in self._withdrawn
        changes: list[Change] = []
        if old.node != facts.node:
            self._release(old)
            changes.append(CellTakenOver(facts.cell_id, old.node))
        elif restarted or withdrawn:
            changes.append(CellReturned(facts.cell_id, restarted))
        if changes:
            self._withdrawn.discard(facts.cell_id)
            self.forget_engine_word(row)
            self.totals[row] = np.nan
        facts = replace(
            facts, models=facts.models or old.models, health_path=facts.health_path or old.health_path
        )
        if not same_for_gateways(old, facts):
            changes.append(CellChanged(facts.cell_id))
        self._set_facts(row, facts, now)
        return changes

    def _set_facts(self, row: int, facts: CellFacts, now: float) -> None:
        old = self._facts.get(row)
        if facts == old:
            facts = old
        else:
            self.facts_version += 1
        self._facts[row] = facts
        self.crews.name(row, facts.cell_id, facts.members, bool(facts.gpus), now)
        if old is None or not same_for_gateways(old, facts):
            self.addresses_version += 1
        if old is not None and old.model_ids == facts.model_ids:
            return
        self._models.name(facts.model_ids)
        if old is not None:
            self._models.unname(old.model_ids, now)
            self._memberships.remove(facts.cell_id, old.model_ids)
        self._memberships.add(facts.cell_id, row, facts.model_ids)
        self._changed()

    def _release(self, facts: CellFacts) -> None:
        """Take a cell off its node, and forget a node that has none left."""
        record = self.nodes.get(facts.node)
        if record is not None and facts.cell_id in record.cells:
            record.cells.remove(facts.cell_id)
            self._index(record)
            if not record.cells and not record.members:
                self.nodes.drop(facts.node)

    def _index(self, record: NodeRecord) -> None:
        record.row_of = {cell_id: self._rows[cell_id] for cell_id in record.cells}
        record.listed = list(record.row_of.values())
        record.rows = span(record.listed)
        self.nodes.keep(record)

    def _changed(self) -> None:
        self._pools = None
