"""One Envoy's delta stream: what is sent in which order, and that any history ends well."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.xds.delta import DeltaStream
from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.stream import HOLD_S
from tests.unit.controller.xds.builders import builder_of, plan_of
from tests.unit.controller.xds.delta_envoy import ROUTES, A, B, Peer, names_in


def test_a_changed_cluster_gets_its_endpoints_once_more() -> None:
    plan = plan_of({"a": {A: 1}, "b": {B: 1}})
    peer = Peer(builder_of().build(plan))
    peer.connect()
    later = builder_of(epoch_ns=1, connect_timeout_s=0.5).build(plan)
    changed = later.types[CDS].resources["pool/a"]
    assert changed.version == peer.snapshot.types[CDS].resources["pool/a"].version
    peer.snapshot = builder_of(epoch_ns=2, connect_timeout_s=0.5).build(plan)
    clusters, endpoints = peer.get(), peer.get()
    assert (clusters.type_url, endpoints.type_url) == (CDS, EDS)
    assert names_in(endpoints) == ["pool/a", "pool/b"]


def test_a_new_cluster_leaves_the_others_alone() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})))
    peer.connect()
    peer.now += 10
    peer.snapshot = builder.build(plan_of({"a": {A: 1}, "b": {B: 1}}))
    clusters = peer.get()
    assert (clusters.type_url, names_in(clusters)) == (CDS, ["pool/b"])
    assert peer.get() is None, "routes wait"
    assert peer.stream.holds(peer.snapshot)
    peer.ack(clusters)
    assert peer.get() is None, "the new pool's endpoints were not asked for yet"
    peer.ask(EDS, "pool/b")
    endpoints = peer.get()
    assert names_in(endpoints) == ["pool/b"]
    assert peer.get() is None
    peer.ack(endpoints)
    assert peer.get().type_url == RDS
    assert not peer.stream.holds(peer.snapshot)


def test_routes_do_not_wait_for_ever() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({})))
    peer.connect()
    peer.now += 10
    peer.snapshot = builder.build(plan_of({"b": {B: 1}}))
    assert peer.get().type_url == CDS
    assert peer.get() is None
    peer.now += HOLD_S
    assert peer.get().type_url == RDS


def test_clusters_go_only_after_their_routes_and_come_before_them() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.connect()
    peer.now += 10
    peer.snapshot = builder.build(plan_of({"b": {B: 1}, "c": {A: 1}}))
    added = peer.get()
    assert (added.type_url, names_in(added), list(added.removed_resources)) == (CDS, ["pool/c"], [])
    peer.ack(added)
    peer.ask(EDS, "pool/c")
    peer.ack(peer.get())
    routes = peer.get()
    assert routes.type_url == RDS
    assert peer.get() is None
    peer.ack(routes)
    removed = peer.get()
    assert (removed.type_url, names_in(removed), list(removed.removed_resources)) == (CDS, [], ["pool/a"])
    assert peer.get() is None, "the endpoints go with their cluster, by Envoy's own word"
    peer.ack(removed)
    peer.ask(EDS, unsubscribe=["pool/a"])
    assert peer.get() is None


fleets = st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from([A, B]), st.integers(1, 3)))
moves = st.lists(st.one_of(fleets, st.sampled_from(["get", "ack", "nack", "wait", "again"])), max_size=40)


class Player(Peer):
    """An Envoy that also asks for the endpoints of the clusters it has, and comes back after a break."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.inbox: list[Any] = []
        self.refused: dict[str, str] = {}
        self.begin()

    def begin(self) -> None:
        self.stream, self.inbox = DeltaStream(), []
        self.refused = {}
        for url in (CDS, LDS, RDS, EDS):
            held = {name: each.version for name, each in self.held[url].items()}
            names = {RDS: ROUTES, EDS: tuple(sorted(self.held[CDS]))}.get(url, ())
            if url != EDS or names:
                self.ask(url, *names, held=held)

    def answer(self, error: str | None = None) -> None:
        response = self.inbox.pop(0)
        if error is not None:
            self.refused[response.type_url] = response.system_version_info
            self.ask(response.type_url, nonce=response.nonce, error=error)
            return
        before = set(self.held[CDS])
        self.ack(response)
        new, gone = set(self.held[CDS]) - before, before - set(self.held[CDS])
        if new or gone:
            self.ask(EDS, *sorted(new), unsubscribe=sorted(gone))
            for name in gone:
                self.held[EDS].pop(name, None)

    def step(self) -> None:
        if (response := self.get()) is not None:
            self.inbox.append(response)


@settings(deadline=None, max_examples=60)
@given(moves)
def test_whatever_the_order_an_envoy_ends_with_what_is_published(history: list[Any]) -> None:
    """Refusals, slowness and broken streams included; and an idle stream sends nothing."""
    builder = builder_of()
    player = Player(builder.build(plan_of({})))
    for move in [*history, {"c": {A: 2}, "a": {B: 3}}]:
        player.now += 0.1
        if isinstance(move, dict):
            player.snapshot = builder.build(plan_of(move))
        elif move == "get":
            player.step()
        elif move in ("ack", "nack") and player.inbox:
            player.answer("no" if move == "nack" else None)
        elif move == "wait":
            player.now += 2
        elif move == "again":
            player.begin()
    for _ in range(60):
        while player.inbox:
            player.answer()
        player.step()
        player.now += 0.3
    assert player.get() is None
    for url in (CDS, LDS, RDS, EDS):
        if player.refused.get(url) == player.snapshot.version(url):
            continue
        published = player.snapshot.types[url].resources
        wanted = player.held[CDS].keys() if url == EDS else published.keys()
        for name in wanted & published.keys():
            assert player.held[url][name].resource == published[name].box, (url, name)
        if url != EDS:
            assert player.held[url].keys() == published.keys(), url
