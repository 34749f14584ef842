"""The fleet: who speaks for which cell, and what was said last, in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from headrace_controller.inventory import beats
from headrace_controller.inventory.changes import (
    CellAdded,
    CellChanged,
    CellReturned,
    CellTakenOver,
    CellWithdrawn,
    Change,
)
from headrace_controller.inventory.columns import Columns, Ints
from headrace_controller.inventory.facts import CellFacts, read_facts, same_for_gateways
from headrace_controller.inventory.pools import Pools, build_pools
from headrace_pb.v1 import telemetry_pb2 as pb

_ENGINE_EVENTS: Final[dict[int, int]] = {
    pb.CELL_EVENT_KIND_ENGINE_DOWN: pb.ENGINE_STATE_DOWN,
    pb.CELL_EVENT_KIND_ENGINE_LOADING: pb.ENGINE_STATE_LOADING,
    pb.CELL_EVENT_KIND_ENGINE_SERVING: pb.ENGINE_STATE_SERVING,
    pb.CELL_EVENT_KIND_ENGINE_HUNG: pb.ENGINE_STATE_HUNG,
    pb.CELL_EVENT_KIND_ENGINE_SLEEPING: pb.ENGINE_STATE_SLEEPING,
}
HISTORY_MS: Final = 1000
RETENTION_S: Final = 600.0


def is_old(event: pb.CellEvent) -> bool:
    """True for an event that was told too late to be news: the next beat tells the state better."""
    return event.age_ms > HISTORY_MS


@dataclass(slots=True)
class NodeRecord:
    """One agent as last heard; `rows` are the rows of the cells it speaks for."""

    name: str
    site: str
    incarnation: int
    agent_version: str
    heard_at: float
    cells: list[str] = field(default_factory=list)
    rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class Fleet(Columns):
    """All known cells. Single-threaded; takes messages that ingest has validated.

    A node speaks only for its own cells: figures and events for others are ignored and reported
    back to the caller. A pool that no cell names any more is known for `retention_s` more, so that
    its requests get a 503 and not at once a 404.
    """

    def __init__(self, gateways: Sequence[str], retention_s: float = RETENTION_S) -> None:
        super().__init__(len(gateways))
        self.gateways = tuple(gateways)
        self.nodes: dict[str, NodeRecord] = {}
        self._gateway_index = {gateway: number for number, gateway in enumerate(self.gateways)}
        self._retention_s = retention_s
        self._rows: dict[str, int] = {}
        self._facts: dict[int, CellFacts] = {}
        self._withdrawn: set[str] = set()
        self._named_by: dict[str, int] = {}
        self._unnamed_since: dict[str, float] = {}
        self._pool_ids: dict[str, int] = {}
        self._next_pool_id = 1
        self.addresses_version = 1
        """Rises whenever gateways would be told something new of a cell."""
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

    def register(self, node: str, site: str, hello: pb.Hello, now: float) -> list[Change]:
        """Take a node's Hello as the new truth about its cells.

        `node` and `site` are the verified identity, whatever the message says, and the node may
        have what it names: a cell of another node is taken over. An entry without models keeps the
        models known before: an engine that is not up cannot name them, and its pool must not turn
        into a 404 meanwhile.
        """
        known = self.nodes.get(node)
        restarted = known is not None and known.incarnation != hello.incarnation
        record = NodeRecord(node, site, hello.incarnation, hello.agent_version, now)
        changes: list[Change] = []
        for cell in hello.cells:
            if cell.cell_id not in record.cells:
                changes += self._take(read_facts(node, site, cell), restarted, now)
                record.cells.append(cell.cell_id)
        gone = [cell_id for cell_id in (known.cells if known else ()) if cell_id not in record.cells]
        self._withdrawn.update(gone)
        changes += [CellWithdrawn(cell_id) for cell_id in gone]
        self.nodes[node] = record
        self._index(record)
        self.touch(node, now)
        return changes

    def touch(self, node: str, now: float) -> None:
        """Note a sign of life of a node and so of its cells; nothing for an unknown node."""
        record = self.nodes.get(node)
        if record is not None:
            record.heard_at = now
            self.last_heard[record.rows] = now

    def apply(self, node: str, telemetry: pb.Telemetry, now: float) -> list[str]:
        """Write a telemetry beat into the arrays; returns the ids that are not this node's."""
        record = self.nodes.get(node)
        if record is None:
            return [beat.cell_id for beat in telemetry.cells]
        self.touch(node, now)
        strangers = []
        for beat in telemetry.cells:
            row = self._own_row(node, beat.cell_id)
            if row is None:
                strangers.append(beat.cell_id)
            else:
                beats.write_cell(self, row, beat, now)
        for path in telemetry.paths:
            gateway = self._gateway_index.get(path.gateway)
            if gateway is not None:
                beats.write_path(self, record.rows, gateway, path, now)
        return strangers

    def note_event(self, node: str, event: pb.CellEvent, now: float) -> bool:
        """Write what an immediate event says into the arrays.

        False, and nothing is written, where the cell is not this node's, and where an engine's word
        is so old that the next beat tells better.
        """
        row = self._own_row(node, event.cell_id)
        if row is None or (event.kind in _ENGINE_EVENTS and is_old(event)):
            return False
        self.touch(node, now)
        if event.kind in _ENGINE_EVENTS:
            self.engine_state[row] = _ENGINE_EVENTS[event.kind]
            self.engine_at[row] = now
            if event.kind != pb.CELL_EVENT_KIND_ENGINE_SERVING:
                self.serving_ms[row] = 0.0
        elif event.kind == pb.CELL_EVENT_KIND_XID and event.HasField("xid"):
            self.last_xid[row] = event.xid
        elif event.kind == pb.CELL_EVENT_KIND_GPU_LOST and not is_old(event):
            self.gpu_lost[row] = True
        return True

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
        self._unname(facts.model_ids, float(self.last_heard[row]))
        self.free_row(row)
        self._changed()

    def forget_pools(self, now: float) -> None:
        """Forget the pools that no cell has named for the retention."""
        gone = [model for model, at in self._unnamed_since.items() if now - at >= self._retention_s]
        for model in gone:
            del self._unnamed_since[model], self._pool_ids[model]
        if gone:
            self._changed()

    def pools(self) -> Pools:
        """The pools of all known cells, and those that one named within the retention. Built anew
        only after a change of models."""
        if self._pools is None:
            cells = ((facts.cell_id, row, facts.model_ids) for row, facts in self._facts.items())
            self._pools = build_pools(self._pool_ids, cells)
        return self._pools

    def _own_row(self, node: str, cell_id: str) -> int | None:
        row = self._rows.get(cell_id)
        if row is None or self._facts[row].node != node or cell_id in self._withdrawn:
            return None
        return row

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
        facts = facts if facts.models else replace(facts, models=old.models)
        if not same_for_gateways(old, facts):
            changes.append(CellChanged(facts.cell_id))
        self._set_facts(row, facts, now)
        return changes

    def _set_facts(self, row: int, facts: CellFacts, now: float) -> None:
        old = self._facts.get(row)
        self._facts[row] = facts
        if old is None or not same_for_gateways(old, facts):
            self.addresses_version += 1
        if old is not None and old.model_ids == facts.model_ids:
            return
        for model in facts.model_ids:
            if model not in self._pool_ids:
                self._pool_ids[model] = self._next_pool_id
                self._next_pool_id += 1
            self._named_by[model] = self._named_by.get(model, 0) + 1
            self._unnamed_since.pop(model, None)
        self._unname(old.model_ids if old is not None else (), now)
        self._changed()

    def _unname(self, models: tuple[str, ...], now: float) -> None:
        """One cell names these models no more; `now` is when it did last."""
        for model in models:
            self._named_by[model] -= 1
            if not self._named_by[model]:
                del self._named_by[model]
                self._unnamed_since[model] = now

    def _release(self, facts: CellFacts) -> None:
        """Take a cell off its node, and forget a node that has none left."""
        record = self.nodes.get(facts.node)
        if record is not None and facts.cell_id in record.cells:
            record.cells.remove(facts.cell_id)
            self._index(record)
            if not record.cells:
                del self.nodes[facts.node]

    def _index(self, record: NodeRecord) -> None:
        record.rows = np.array([self._rows[cell_id] for cell_id in record.cells], dtype=np.int64)

    def _changed(self) -> None:
        self._pools = None
