"""Checks on every message before it may change anything.

Each check returns None, or a `Rejection` whose `reason` is a short fixed name (it becomes a metric
label) and whose `detail` names the field and the remedy.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import GPU_SIGNALS

MAX_CELLS = 256
MAX_MODELS = 256
MAX_GPUS = 64
MAX_LABELS = 64
MAX_NODES = 64
MAX_SOURCES = 64
MAX_TEXT = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")
_FRACTIONS = ("error_rate", "kv_fill", "gpu_util", "vram_util", "compute_active", "memory_bw_util")
# Engines round: a fill of 1.0000001 is full, not a wrong unit.
_FRACTION_LIMIT = 1.001
MEMBER_EVENTS = frozenset({pb.CELL_EVENT_KIND_XID, pb.CELL_EVENT_KIND_GPU_LOST})
"""What a node may tell of a cell that it is only a member of."""


Beat = pb.CellBeat | pb.MemberBeat


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a message, or one cell of it, is not taken."""

    reason: str
    detail: str


def check_hello(hello: pb.Hello) -> Rejection | None:
    """Check what makes a whole Hello unusable."""
    if not _NAME.match(hello.node):
        return Rejection("bad_name", f"node {hello.node[:80]!r} is no name; use letters, digits and . _ / -")
    if not _NAME.match(hello.site):
        return Rejection("bad_name", f"site {hello.site[:80]!r} is no name; use letters, digits and . _ / -")
    if hello.incarnation == 0:
        return Rejection("no_incarnation", "incarnation is 0; send the agent's start time in nanoseconds")
    if len(hello.cells) > MAX_CELLS:
        return Rejection("too_many_cells", f"{len(hello.cells)} cells in one Hello, more than {MAX_CELLS}")
    if len(hello.members) > MAX_CELLS:
        return Rejection(
            "too_many_cells", f"{len(hello.members)} members in one Hello, more than {MAX_CELLS}"
        )
    if len(hello.agent_version) > MAX_TEXT:
        return Rejection("too_long", f"agent_version has more than {MAX_TEXT} letters")
    ids = [cell.cell_id for cell in hello.cells] + [member.cell_id for member in hello.members]
    twice = {cell_id for cell_id in ids if ids.count(cell_id) > 1}
    if twice:
        return Rejection(
            "cell_twice",
            f"cell {min(twice)[:80]!r} stands twice in the Hello; give each cell its own id, and "
            "name it in members only where another node speaks for it",
        )
    return None


def clip(text: str) -> str:
    """A text for people, cut to MAX_TEXT letters."""
    return text[:MAX_TEXT]


def check_cell(cell: pb.CellFacts, local: bool = True) -> Rejection | None:
    """Check the facts of one cell; a bad one is refused alone.

    `local`: its agent speaks from this machine; only then may it advertise a loopback address,
    which to a gateway is the gateway's own machine.
    """
    if not _NAME.match(cell.cell_id):
        return Rejection(
            "bad_name", f"cell {cell.cell_id[:80]!r} is no name; use letters, digits and . _ / -"
        )
    address = cell.address
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        return Rejection(
            "bad_address",
            f"advertised host {address.host[:80]!r} is no IP address; set the cell's advertise to one",
        )
    unusable = ip.is_unspecified or ip.is_multicast or ip.is_link_local or (ip.is_loopback and not local)
    if unusable or not 1 <= address.port <= 65535:
        return Rejection(
            "bad_address",
            f"gateways cannot use the advertised address {address.host[:80]}:{address.port}; "
            "set the cell's advertise to one that they reach",
        )
    return _check_nodes(cell) or _check_sizes(cell)


def _check_nodes(cell: pb.CellFacts) -> Rejection | None:
    nodes = cell.member_nodes
    if len(nodes) > MAX_NODES:
        return Rejection("too_long", f"cell {cell.cell_id}: {len(nodes)} nodes, more than {MAX_NODES}")
    for node in nodes:
        if not _NAME.match(node):
            return Rejection(
                "bad_name",
                f"cell {cell.cell_id}: node {node[:80]!r} is no name; use letters, digits and . _ / -",
            )
    return None


def check_member(member: pb.MemberFacts) -> Rejection | None:
    """Check what a node says of its GPUs under another's cell; a bad entry is refused alone."""
    if not _NAME.match(member.cell_id):
        return Rejection(
            "bad_name", f"cell {member.cell_id[:80]!r} is no name; use letters, digits and . _ / -"
        )
    if len(member.gpus) > MAX_GPUS:
        return Rejection("too_long", f"member of cell {member.cell_id}: more than {MAX_GPUS} GPUs")
    if any(len(text) > MAX_TEXT for gpu in member.gpus for text in (gpu.uuid, gpu.name)):
        return Rejection(
            "too_long", f"member of cell {member.cell_id}: a fact with more than {MAX_TEXT} letters"
        )
    return None


def _check_sizes(cell: pb.CellFacts) -> Rejection | None:
    if len(cell.models) > MAX_MODELS or len(cell.gpus) > MAX_GPUS or len(cell.labels) > MAX_LABELS:
        return Rejection("too_long", f"cell {cell.cell_id}: too many models, GPUs or labels")
    if any(not model.id for model in cell.models):
        return Rejection("bad_model", f"cell {cell.cell_id}: a model without a name")
    texts = [cell.engine_kind, cell.engine_version, *cell.labels, *cell.labels.values()]
    texts += [text for model in cell.models for text in (model.id, model.base_model)]
    texts += [text for gpu in cell.gpus for text in (gpu.uuid, gpu.name)]
    if any(len(text) > MAX_TEXT for text in texts):
        return Rejection("too_long", f"cell {cell.cell_id}: a fact with more than {MAX_TEXT} letters")
    return None


def check_telemetry(telemetry: pb.Telemetry) -> Rejection | None:
    """Check every figure of a telemetry beat: finite, not negative, in its unit."""
    most = max(len(telemetry.cells), len(telemetry.paths), len(telemetry.members))
    if most > MAX_CELLS:
        return Rejection(
            "too_many_cells", f"{most} cells, members or paths in one beat, more than {MAX_CELLS}"
        )
    beats: list[Beat] = [*telemetry.cells, *telemetry.members]
    for beat in beats:
        rejection = _check_signals(beat) or _check_health(beat) or _check_sources(beat)
        if rejection is not None:
            return rejection
    for path in telemetry.paths:
        if not _finite((path.rtt_ms, path.jitter_ms, path.loss)):
            return Rejection(
                "bad_number", f"path to {path.gateway[:80]!r}: a figure is negative or not finite"
            )
    return _check_members(telemetry.members)


def _check_signals(beat: Beat) -> Rejection | None:
    for field, value in beat.signals.ListFields():
        if not math.isfinite(value) or value < 0:
            return Rejection(
                "bad_number", f"cell {beat.cell_id[:80]}: {field.name} is {value}; leave out what is unknown"
            )
        if field.name in _FRACTIONS and value > _FRACTION_LIMIT:
            return Rejection(
                "bad_unit", f"cell {beat.cell_id[:80]}: {field.name} is {value}; it is a fraction of 1"
            )
    return None


def _check_health(beat: Beat) -> Rejection | None:
    for field, value in beat.hardware.ListFields():
        if isinstance(value, float) and not math.isfinite(value):
            return Rejection(
                "bad_number", f"cell {beat.cell_id[:80]}: {field.name} is {value}; leave out what is unknown"
            )
    return None


def _check_sources(beat: Beat) -> Rejection | None:
    if len(beat.sources) <= MAX_SOURCES:
        return None
    return Rejection(
        "too_long", f"cell {beat.cell_id[:80]}: {len(beat.sources)} sources, more than {MAX_SOURCES}"
    )


def _check_members(members: Sequence[pb.MemberBeat]) -> Rejection | None:
    """A member beat is of GPUs alone, and one a cell: two would be one figure told twice."""
    seen: set[str] = set()
    for member in members:
        if member.cell_id in seen:
            return Rejection("cell_twice", f"member of cell {member.cell_id[:80]!r} stands twice in one beat")
        seen.add(member.cell_id)
        for field, _ in member.signals.ListFields():
            if field.name not in GPU_SIGNALS:
                return Rejection(
                    "foreign_signal",
                    f"member of cell {member.cell_id[:80]!r}: {field.name} is for the node of the engine to "
                    "tell; a member tells of its GPUs only",
                )
    return None


def check_event(event: pb.CellEvent) -> Rejection | None:
    """Check an event before it may move a cell."""
    if event.kind == pb.CELL_EVENT_KIND_UNSPECIFIED or event.kind not in pb.CellEventKind.values():
        return Rejection(
            "unknown_event", f"cell {event.cell_id[:80]!r}: event of an unknown kind; update the controller"
        )
    if event.event_id == 0:
        return Rejection("no_event_id", f"cell {event.cell_id[:80]!r}: event_id is 0; events count from 1")
    return None


def _finite(values: Iterable[float]) -> bool:
    return all(math.isfinite(value) and value >= 0 for value in values)
