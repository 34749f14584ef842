"""One Envoy's stream: what is sent, in which order, and what never is."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.stream import HOLD_S, Acked, Nacked, Stream
from tests.unit.controller.xds.builders import builder_of, plan_of, request

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
ROUTES = ("headrace",)


class Peer:
    """Plays an Envoy against a Stream, one response at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.stream, self.snapshot, self.now = Stream(), snapshot, 100.0

    def ask(self, url: str, *names: str, nonce: str = "", version: str = "", error: str | None = None) -> Any:
        sent = request(url, names, nonce, version, error)
        return self.stream.on_request(sent, self.snapshot, self.now)

    def get(self) -> Any:
        return self.stream.next_response(self.snapshot, self.now)

    def ack(self, response: Any, *names: str) -> Any:
        return self.ask(response.type_url, *names, nonce=response.nonce, version=response.version_info)

    def connect(self) -> None:
        """Subscribe to everything as Envoy does, and take it."""
        self.ask(CDS)
        self.ack(self.get())
        pools = tuple(self.snapshot.types[EDS].resources)
        if pools:
            self.ask(EDS, *pools)
            self.ack(self.get(), *pools)
        self.ask(LDS)
        self.ack(self.get())
        self.ask(RDS, *ROUTES)
        self.ack(self.get(), *ROUTES)
        assert self.get() is None


def names_in(response: Any) -> list[str]:
    """The pools of an EDS response, by its bytes."""
    return [box.value.split(b"pool/")[1][:1].decode() for box in response.resources]


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    peer = Peer(builder_of().build(plan_of({"m": {A: 1}})))
    assert peer.get() is None
    peer.ask("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret")
    assert peer.get() is None
    peer.ask(EDS)
    assert peer.get() is None, "no names, no endpoints"


def test_a_fresh_envoy_gets_everything_once() -> None:
    snapshot = builder_of().build(plan_of({"m": {A: 1}, "n": {}}))
    peer = Peer(snapshot)
    peer.connect()
    for url in (CDS, EDS, LDS, RDS):
        assert peer.stream.settled(url, snapshot)


def test_an_ack_says_how_long_it_took() -> None:
    peer = Peer(builder_of().build(plan_of({"m": {A: 1}})))
    peer.ask(CDS)
    response = peer.get()
    peer.now += 0.25
    assert peer.ack(response) == Acked(CDS, response.version_info, 0.25)
    assert peer.ack(response) is None, "said once"


def test_new_weights_send_the_changed_pool_only() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.connect()
    peer.snapshot = builder.build(plan_of({"a": {A: 2}, "b": {B: 1}}))
    response = peer.get()
    assert (response.type_url, names_in(response)) == (EDS, ["a"])
    assert peer.get() is None


def test_a_slow_envoy_gets_the_newest_and_none_in_between() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})))
    peer.connect()
    for weight in range(2, 50):
        peer.snapshot = builder.build(plan_of({"a": {A: weight}}))
    assert peer.get().version_info == peer.snapshot.version(EDS)
    assert peer.get() is None


def test_a_refusal_is_said_and_never_loops() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.connect()
    peer.snapshot = builder.build(plan_of({"a": {A: 2}, "b": {B: 1}}))
    refused = peer.get()
    answer = peer.ask(EDS, "pool/a", "pool/b", nonce=refused.nonce, version="before", error="bad weight")
    assert answer == Nacked(EDS, refused.version_info, "bad weight")
    assert peer.stream.refuses(EDS) == refused.version_info
    for _ in range(3):
        assert peer.get() is None
        peer.now += 10
    peer.snapshot = builder.build(plan_of({"a": {A: 3}, "b": {B: 1}}))
    again = peer.get()
    assert names_in(again) == ["a", "b"], "whole: it is not known what of the refused one was taken"
    assert isinstance(peer.ack(again, "pool/a", "pool/b"), Acked)
    assert peer.stream.refuses(EDS) == ""


def test_a_refused_whole_type_waits_for_new_content_too() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})))
    peer.ask(CDS)
    peer.ask(CDS, nonce=peer.get().nonce, error="no")
    assert peer.get() is None
    peer.snapshot = builder.build(plan_of({"a": {A: 9}}))
    assert peer.get() is None, "the clusters did not change"
    peer.snapshot = builder.build(plan_of({"a": {A: 9}, "b": {}}))
    assert len(peer.get().resources) == 2


def test_a_late_refusal_sends_the_whole_again_but_once() -> None:
    """The later response held only what changed after the one that is now refused."""
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.connect()
    both = ("pool/a", "pool/b")
    peer.snapshot = builder.build(plan_of({"a": {A: 2}, "b": {B: 1}}))
    first = peer.get()
    peer.snapshot = builder.build(plan_of({"a": {A: 2}, "b": {B: 2}}))
    second = peer.get()
    assert names_in(second) == ["b"]
    assert isinstance(peer.ask(EDS, *both, nonce=first.nonce, error="no"), Nacked)
    third = peer.get()
    assert names_in(third) == ["a", "b"]
    assert isinstance(peer.ack(second, *both), Acked)
    assert isinstance(peer.ask(EDS, *both, nonce=third.nonce, error="no"), Nacked)
    assert peer.get() is None


def test_names_of_a_stale_request_are_ignored() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.ask(EDS, "pool/a")
    first = peer.get()
    peer.snapshot = builder.build(plan_of({"a": {A: 2}, "b": {B: 1}}))
    second = peer.get()
    assert isinstance(peer.ask(EDS, "pool/b", nonce=first.nonce), Acked), "still a word on the first"
    assert peer.get() is None
    peer.ask(EDS, "pool/b", nonce=second.nonce)
    assert names_in(peer.get()) == ["b"]
    assert peer.ask(EDS, nonce="never-sent") is None


def test_a_name_that_comes_back_is_answered_again() -> None:
    peer = Peer(builder_of().build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.ask(EDS, "pool/a", "pool/b")
    nonce = peer.get().nonce
    peer.ask(EDS, "pool/a", nonce=nonce)
    assert peer.get() is None
    peer.ask(EDS, "pool/a", "pool/b", nonce=nonce)
    assert names_in(peer.get()) == ["b"]


def test_an_envoy_that_comes_back_gets_only_what_it_may_lack() -> None:
    snapshot = builder_of().build(plan_of({"a": {A: 1}}))
    peer = Peer(snapshot)
    peer.ask(CDS, version=snapshot.version(CDS))
    peer.ask(EDS, "pool/a", version=snapshot.version(EDS))
    peer.ask(LDS, version=snapshot.version(LDS))
    peer.ask(RDS, *ROUTES, version="from another controller")
    assert [peer.get().type_url, peer.get().type_url] == [EDS, RDS]
    assert peer.get() is None
    assert peer.stream.settled(LDS, snapshot)


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


@settings(deadline=None, max_examples=60)
@given(moves)
def test_whatever_the_order_an_envoy_ends_with_what_is_published(history: list[Any]) -> None:
    """Refusals, slowness and reordering included; and an idle stream sends nothing."""
    builder = builder_of()
    peer = Peer(builder.build(plan_of({})))
    peer.ask(CDS)
    peer.ask(LDS)
    peer.ask(RDS, *ROUTES)
    held: dict[str, dict[str, bytes]] = {url: {} for url in (CDS, EDS, LDS, RDS)}
    inbox: list[Any] = []

    def answer(response: Any, error: str | None = None) -> None:
        url = response.type_url
        if error is None:
            if url in (CDS, LDS):
                held[url] = {}
            for box in response.resources:
                held[url][_name(peer.snapshot, url, box.value)] = box.value
        pools = tuple(sorted(held[CDS]))
        names = {CDS: (), LDS: (), RDS: ROUTES, EDS: pools}[url]
        peer.ask(url, *names, nonce=response.nonce, error=error)
        if url == CDS:
            latest = {each.type_url: each.nonce for each in [*seen, response]}
            peer.ask(EDS, *pools, nonce=latest.get(EDS, ""))

    seen: list[Any] = []
    for move in [*history, {"c": {A: 2}, "a": {B: 3}}]:
        peer.now += 0.1
        if isinstance(move, dict):
            peer.snapshot = builder.build(plan_of(move))
        elif move == "get" and (response := peer.get()) is not None:
            inbox.append(response)
            seen.append(response)
        elif move in ("ack", "nack") and inbox:
            answer(inbox.pop(0), "no" if move == "nack" else None)
        elif move == "wait":
            peer.now += 2
    for _ in range(60):
        while inbox:
            answer(inbox.pop(0))
        if (response := peer.get()) is not None:
            inbox.append(response)
            seen.append(response)
        peer.now += 0.3
    assert peer.get() is None
    for url in (CDS, LDS, RDS, EDS):
        if peer.stream.refuses(url) == peer.snapshot.version(url):
            continue
        for name, each in peer.snapshot.types[url].resources.items():
            if url == EDS and name not in held[CDS]:
                continue
            assert held[url].get(name) == each.box.value, (url, name)


def _name(snapshot: Snapshot, url: str, value: bytes) -> str:
    if url in (RDS, LDS):
        return "headrace"
    return "pool/" + value.split(b"pool/")[1][:1].decode()
