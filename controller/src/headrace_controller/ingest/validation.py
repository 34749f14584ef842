"""Checks on every message before it may change anything.

Each check returns None, or a `Rejection` whose `reason` is a short fixed name (it becomes a metric
label) and whose `detail` names the field and the remedy.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace_pb.v1 import telemetry_pb2 as pb

MAX_CELLS = 256
MAX_MODELS = 256
MAX_GPUS = 64
MAX_LABELS = 64
MAX_NODES = 64
MAX_TEXT = 1024
MAX_SOURCES = 64
FRACTION_LIMIT = 1.001
"""Engines round: a fill of 1.0000001 is full, not a wrong unit."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")
# It is written into Envoy's configuration, and asked of an engine.
_PATH = re.compile(r"/[A-Za-z0-9._~/-]{0,255}\Z")
MEMBER_EVENTS = frozenset({pb.CELL_EVENT_KIND_XID, pb.CELL_EVENT_KIND_GPU_LOST})
"""What a node may tell of a cell that it is only a member of."""


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
    ip = read_address(address.host)
    if ip is None:
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
    return _check_nodes(cell) or _check_sizes(cell) or _check_health_path(cell)


def read_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a host is for a gateway: an IPv4 address written as IPv6 is the IPv4 one.
    None for what is no address, and for one of this machine's links alone (`fe80::1%eth0`)."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        return None if ip.scope_id else ip.ipv4_mapped or ip
    return ip


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


def _check_health_path(cell: pb.CellFacts) -> Rejection | None:
    if not cell.health_path or _PATH.match(cell.health_path):
        return None
    return Rejection(
        "bad_path",
        f"cell {cell.cell_id}: health_path {cell.health_path[:80]!r} is no path; begin it with / and use "
        "letters, digits and . _ ~ / - only",
    )


def check_member(member: pb.MemberFacts) -> Rejection | None:
    """Check what a node says of its GPUs under another's cell; a bad entry is refused alone."""
    if not _NAME.match(member.cell_id):
        return Rejection(
            "bad_name", f"cell {member.cell_id[:80]!r} is no name; use letters, digits and . _ / -"
        )
    return _check_gpu_facts(member.cell_id, member.gpus)


def _check_sizes(cell: pb.CellFacts) -> Rejection | None:
    if len(cell.models) > MAX_MODELS or len(cell.labels) > MAX_LABELS:
        return Rejection("too_long", f"cell {cell.cell_id}: too many models or labels")
    texts = [cell.engine_kind, cell.engine_version, *cell.labels, *cell.labels.values()]
    if any(len(text) > MAX_TEXT for text in texts):
        return Rejection("too_long", f"cell {cell.cell_id}: a fact with more than {MAX_TEXT} letters")
    return _check_gpu_facts(cell.cell_id, cell.gpus)


def check_model(cell_id: str, model: pb.ModelFacts) -> Rejection | None:
    """Check one model of a cell; a bad entry is refused alone, for whoever may load an adapter into an
    engine gives it its name."""
    if not model.id or not model.id.isprintable():
        return Rejection(
            "bad_model", f"cell {cell_id}: model {model.id[:80]!r} is no name; use printable letters"
        )
    if len(model.id) > MAX_TEXT or len(model.base_model) > MAX_TEXT:
        return Rejection(
            "bad_model", f"cell {cell_id}: model {model.id[:80]!r}: a name with more than {MAX_TEXT} letters"
        )
    if model.HasField("max_model_len") and not model.max_model_len:
        return Rejection(
            "bad_model",
            f"cell {cell_id}: model {model.id[:80]}: max_model_len is 0; leave out what is unknown",
        )
    return None


def _check_gpu_facts(cell_id: str, gpus: Sequence[pb.GpuFacts]) -> Rejection | None:
    if len(gpus) > MAX_GPUS:
        return Rejection("too_long", f"cell {cell_id}: {len(gpus)} GPUs, more than {MAX_GPUS}")
    for gpu in gpus:
        if len(gpu.uuid) > MAX_TEXT or len(gpu.name) > MAX_TEXT:
            return Rejection("too_long", f"cell {cell_id}: a GPU's fact has more than {MAX_TEXT} letters")
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
