"""One Envoy's stream: what is sent in which order, and that any history ends well."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.stream import HOLD_S, Acked, Nacked
from tests.unit.controller.xds.builders import builder_of, plan_of
from tests.unit.controller.xds.stream_envoy import ROUTES, A, B, Peer, names_in


def test_routes_wait_for_their_clusters_and_endpoints() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})))
    peer.connect()
    peer.now += 10
    peer.snapshot = builder.build(plan_of({"a": {A: 1}, "b": {B: 1}}))
    clusters, endpoints = peer.get(), peer.get()
    assert (clusters.type_url, endpoints.type_url, names_in(endpoints)) == (CDS, EDS, ["a"])
    assert peer.get() is None
    assert peer.stream.holds(peer.snapshot)
    peer.ack(clusters)
    peer.ack(endpoints, "pool/a")
    assert peer.get() is None, "the new pool's endpoints were not asked for yet"
    peer.ask(EDS, "pool/a", "pool/b", nonce=endpoints.nonce)
    new = peer.get()
    assert names_in(new) == ["b"]
    assert peer.get() is None
    peer.ack(new, "pool/a", "pool/b")
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


def test_clusters_go_only_after_their_routes() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.connect()
    peer.now += 10
    peer.snapshot = builder.build(plan_of({"a": {A: 1}}))
    routes = peer.get()
    assert routes.type_url == RDS
    assert peer.get() is None
    peer.ack(routes, *ROUTES)
    clusters = peer.get()
    assert (clusters.type_url, len(clusters.resources)) == (CDS, 1)


def test_clusters_that_go_while_others_come_stay_until_no_route_needs_them() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.connect()
    peer.now += 10
    peer.snapshot = builder.build(plan_of({"b": {B: 1}, "c": {A: 1}}))
    both, endpoints = peer.get(), peer.get()
    assert (both.type_url, len(both.resources)) == (CDS, 3)
    assert both.version_info != peer.snapshot.version(CDS), "were the stream to break, it would be sent again"
    assert names_in(endpoints) == ["b"]
    peer.ack(both)
    peer.ask(EDS, "pool/a", "pool/b", "pool/c", nonce=endpoints.nonce)
    peer.ack(peer.get(), "pool/a", "pool/b", "pool/c")
    assert not peer.stream.settled(CDS, peer.snapshot)
    routes = peer.get()
    assert routes.type_url == RDS
    assert peer.get() is None
    peer.ack(routes, *ROUTES)
    clusters = peer.get()
    assert (clusters.type_url, len(clusters.resources)) == (CDS, 2)
    assert peer.ack(clusters) == Acked(CDS, peer.snapshot.version(CDS), 0.0)
    assert peer.stream.settled(CDS, peer.snapshot)


def test_a_refusal_of_clusters_that_stay_for_a_while_does_not_loop() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})))
    peer.connect()
    peer.now += 10
    peer.snapshot = builder.build(plan_of({"c": {A: 1}}))
    both = peer.get()
    assert len(both.resources) == 2
    assert isinstance(peer.ask(CDS, nonce=both.nonce, error="no"), Nacked)
    seen = []
    for _ in range(10):
        peer.now += 1
        if (response := peer.get()) is not None:
            seen.append(response.type_url)
            peer.ack(response, *(ROUTES if response.type_url == RDS else ("pool/a",)))
    assert CDS not in seen


def test_the_last_pool_can_go() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})))
    peer.connect()
    peer.now += 10
    peer.snapshot = builder.build(plan_of({}))
    peer.ack(peer.get(), *ROUTES)
    clusters = peer.get()
    assert (clusters.type_url, len(clusters.resources)) == (CDS, 0)
    peer.ack(clusters)
    assert peer.get() is None


fleets = st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.sampled_from([A, B]), st.integers(1, 3)))
moves = st.lists(st.one_of(fleets, st.sampled_from(["get", "ack", "nack", "wait"])), max_size=40)


class Player(Peer):
    """An Envoy that takes what it is sent in its own time, and asks for the endpoints of its clusters."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.held: dict[str, dict[str, bytes]] = {url: {} for url in (CDS, EDS, LDS, RDS)}
        self.inbox: list[Any] = []
        self.seen: list[Any] = []
        self.ask(CDS)
        self.ask(LDS)
        self.ask(RDS, *ROUTES)

    def step(self) -> None:
        if (response := self.get()) is not None:
            self.inbox.append(response)
            self.seen.append(response)

    def answer(self, error: str | None = None) -> None:
        response = self.inbox.pop(0)
        url = response.type_url
        if error is None:
            self._take(url, response)
        pools = tuple(sorted(self.held[CDS]))
        names = {CDS: (), LDS: (), RDS: ROUTES, EDS: pools}[url]
        self.ask(url, *names, nonce=response.nonce, error=error)
        if url == CDS:
            latest = {each.type_url: each.nonce for each in [*self.seen, response]}
            self.ask(EDS, *pools, nonce=latest.get(EDS, ""))

    def _take(self, url: str, response: Any) -> None:
        if url in (CDS, LDS):
            self.held[url] = {}
        for box in response.resources:
            self.held[url][_name(url, box.value)] = box.value


@settings(deadline=None, max_examples=60)
@given(moves)
def test_whatever_the_order_an_envoy_ends_with_what_is_published(history: list[Any]) -> None:
    """Refusals, slowness and reordering included; and an idle stream sends nothing."""
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
    for _ in range(60):
        while player.inbox:
            player.answer()
        player.step()
        player.now += 0.3
    assert player.get() is None
    for url in (CDS, LDS, RDS, EDS):
        if player.stream.refuses(url) == player.snapshot.version(url):
            continue
        for name, each in player.snapshot.types[url].resources.items():
            if url == EDS and name not in player.held[CDS]:
                continue
            assert player.held[url].get(name) == each.box.value, (url, name)


def _name(url: str, value: bytes) -> str:
    if url in (RDS, LDS):
        return "headrace"
    return "pool/" + value.split(b"pool/")[1][:1].decode()
