"""Who speaks for which cell: one live session a node, one live node a cell.

Pure bookkeeping: no clock, no sockets. A session is live from its Hello until its stream ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_controller.ingest.known import Known, NothingKnown
from headrace_controller.ingest.rosters import Rosters
from headrace_controller.ingest.sites import Sites
from headrace_controller.ingest.validation import (
    Rejection,
    check_cell,
    check_hello,
    check_member,
)
from headrace_pb.v1 import telemetry_pb2 as pb

MAX_REMEMBERED = 4096


@dataclass(slots=True)
class Session:
    """One agent's stream. `seq` is the highest sequence number taken; `event_id` the last event;
    `local`: it comes from this machine; `replaced`: a newer stream of the node has taken over.

    `members` are the cells of other nodes that have GPUs of this one; of these, `turned_away` says
    which may not be reported for now, and why. `bad_models`: of cells that were taken, why the first bad
    one of their models is left out. `kept`: of cells whose new facts are refused, those that stay in
    force. `said`: the refusals that were logged.
    """

    id: str
    node: str
    site: str
    incarnation: int
    cells: frozenset[str] = frozenset()
    seq: int = 0
    event_id: int = 0
    local: bool = True
    replaced: bool = False
    last_rejection: str = ""
    refused: dict[str, Rejection] = field(default_factory=dict)
    kept: dict[str, pb.CellFacts] = field(default_factory=dict)
    bad_models: dict[str, Rejection] = field(default_factory=dict)
    said: dict[str, Rejection] = field(default_factory=dict)
    members: frozenset[str] = frozenset()
    turned_away: dict[str, Rejection] = field(default_factory=dict)

    @property
    def reports_for(self) -> frozenset[str]:
        """The cells of other nodes whose GPUs here it may tell of."""
        return self.members - self.turned_away.keys()


class Sessions:
    """All live sessions, and the events each node's incarnation has already delivered. `sites` says
    what nodes may claim, `known` what stands of their earlier Hellos."""

    def __init__(self, sites: Sites | None = None, known: Known | None = None) -> None:
        self.sites = sites or Sites()
        self._known = known or NothingKnown()
        self._live: dict[str, Session] = {}
        self._holder: dict[str, str] = {}
        self._delivered: dict[str, tuple[int, int]] = {}
        self._rosters = Rosters()
        self._member_nodes: dict[str, set[str]] = {}
        self._spoken: set[str] = set()
        self._opened = 0

    @property
    def live(self) -> tuple[Session, ...]:
        """Live sessions, by node name."""
        return tuple(self._live[node] for node in sorted(self._live))

    def of(self, node: str) -> Session | None:
        """The live session of a node."""
        return self._live.get(node)

    def open(self, hello: pb.Hello, local: bool = True) -> Session | Rejection:
        """Begin a session. The same node with the same or a later start replaces its older session."""
        rejection = check_hello(hello) or self.sites.check_node(hello.node, hello.site)
        if rejection is not None:
            return rejection
        old = self._live.get(hello.node)
        rejection = _rival(hello, old) if old is not None else None
        if rejection is not None:
            return rejection
        self._opened += 1
        session = Session(
            f"{hello.node}#{self._opened}", hello.node, hello.site, hello.incarnation, local=local
        )
        incarnation, event_id = self._delivered.get(hello.node, (0, 0))
        if incarnation == hello.incarnation:
            session.event_id = event_id
        if old is not None:
            self.close(old)
            old.replaced = True
        self._live[hello.node] = session
        self._claim(session, hello)
        return session

    def update(self, session: Session, hello: pb.Hello) -> Rejection | None:
        """Take a later Hello of the same stream: its facts replace those before."""
        rejection = _replaced(session) or check_hello(hello)
        if rejection is None and (hello.node, hello.site, hello.incarnation) != (
            session.node,
            session.site,
            session.incarnation,
        ):
            rejection = Rejection(
                "identity_changed", f"node {session.node} changed its name, site or start mid-stream"
            )
        if rejection is None:
            self._claim(session, hello)
        return rejection

    def close(self, session: Session) -> None:
        """End a session; its cells may then be claimed by another node."""
        if self._live.get(session.node) is not session:
            return
        del self._live[session.node]
        for cell_id in session.cells:
            if self._holder.get(cell_id) == session.node:
                del self._holder[cell_id]
        self._spoken |= session.cells & self._member_nodes.keys()
        self._rosters.leave(session.node)
        self._index_members(session, frozenset())

    def review_members(self) -> list[Session]:
        """The sessions that others' Hellos since the last call made members of a cell, or not."""
        spoken, self._spoken = self._spoken, set()
        nodes = {node for cell_id in spoken for node in self._member_nodes.get(cell_id, ())}
        changed = []
        for session in (self._live[node] for node in sorted(nodes)):
            bad = {cell: why for cell, why in session.turned_away.items() if cell not in session.members}
            now = bad | self._refusals(session)
            if now != session.turned_away:
                session.turned_away = now
                changed.append(session)
        return changed

    def take_seq(self, session: Session, seq: int) -> Rejection | None:
        """Take the next sequence number of a stream; replays and reordering are rejected."""
        if session.replaced:
            return _replaced(session)
        if seq <= session.seq:
            return Rejection("replayed", f"node {session.node}: sequence {seq} after {session.seq}")
        session.seq = seq
        return None

    def take_event(self, session: Session, event: pb.CellEvent) -> bool:
        """True when the event is new; False for one that this incarnation delivered before."""
        if event.event_id <= session.event_id:
            return False
        session.event_id = event.event_id
        self._delivered.pop(session.node, None)
        self._delivered[session.node] = (session.incarnation, event.event_id)
        while len(self._delivered) > MAX_REMEMBERED:
            del self._delivered[next(iter(self._delivered))]
        return True

    def _claim(self, session: Session, hello: pb.Hello) -> None:
        session.refused, session.kept = {}, {}
        taken: dict[str, pb.CellFacts] = {}
        for cell in hello.cells:
            rejection = self._refuse(session, cell)
            if rejection is None:
                taken[cell.cell_id] = cell
                continue
            session.refused[cell.cell_id] = rejection
            known = self._known.facts(session.node, cell.cell_id)
            # Facts in force may break rules that are newer than they are.
            if known is not None and self._refuse(session, known) is None:
                session.kept[cell.cell_id] = taken[cell.cell_id] = known
        accepted = taken.keys()
        for cell_id in session.cells - accepted:
            if self._holder.get(cell_id) == session.node:
                del self._holder[cell_id]
        for cell_id in accepted:
            self._holder[cell_id] = session.node
        self._spoken |= (session.cells | accepted) & self._member_nodes.keys()
        session.cells = frozenset(accepted)
        self._rosters.set(session.node, list(taken.values()))
        self._claim_memberships(session, hello)

    def _refuse(self, session: Session, cell: pb.CellFacts) -> Rejection | None:
        """Why the session may not speak for the cell with these facts."""
        bad = check_cell(cell, session.local) or self.sites.check_address(session.site, cell.address.host)
        holder = self._holder.get(cell.cell_id)
        if bad is not None or holder is None or holder == session.node:
            return bad
        return Rejection("cell_held", f"held by node {holder}, which is connected; give each cell one agent")

    def _claim_memberships(self, session: Session, hello: pb.Hello) -> None:
        bad = {each.cell_id: why for each in hello.members if (why := check_member(each)) is not None}
        self._index_members(session, frozenset(each.cell_id for each in hello.members) - bad.keys())
        session.turned_away = bad | self._refusals(session)

    def _index_members(self, session: Session, members: frozenset[str]) -> None:
        for cell_id in session.members - members:
            nodes = self._member_nodes[cell_id]
            nodes.discard(session.node)
            if not nodes:
                del self._member_nodes[cell_id]
        for cell_id in members - session.members:
            self._member_nodes.setdefault(cell_id, set()).add(session.node)
        session.members = members

    def _refusals(self, session: Session) -> dict[str, Rejection]:
        found = ((cell_id, self._rosters.refusal(session.node, cell_id)) for cell_id in session.members)
        return {cell_id: why for cell_id, why in found if why is not None}


def _replaced(session: Session) -> Rejection | None:
    if not session.replaced:
        return None
    return Rejection("replaced", f"node {session.node}: a newer stream has taken over")


def _rival(hello: pb.Hello, old: Session) -> Rejection | None:
    """Whether a Hello comes from another agent than the one that is connected under its name."""
    if hello.incarnation < old.incarnation:
        return Rejection(
            "older_incarnation",
            f"node {hello.node}: an agent that started later is connected; stop one of the two",
        )
    cells = {cell.cell_id for cell in hello.cells} | {member.cell_id for member in hello.members}
    known = old.cells | old.members
    if hello.incarnation > old.incarnation and cells and known and not cells & known:
        return Rejection(
            "node_twice",
            f"node {hello.node}: an agent with other cells is connected under this name; "
            "give each host its own",
        )
    return None
