"""One Envoy's delta stream: only what differs is sent, in which order, and what never is."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.xds.delta import DeltaStream
from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.stream import HOLD_S, Acked, Nacked
from tests.unit.controller.xds.builders import builder_of, delta_request, plan_of, weights_of

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
ROUTES = ("headrace",)


class Peer:
    """Plays an Envoy against a DeltaStream; `held` is what it has, by type and name."""

    def __init__(self, snapshot: Snapshot, *, endpoints_only: bool = False) -> None:
        self.stream = DeltaStream(endpoints_only=endpoints_only)
        self.snapshot, self.now = snapshot, 100.0
        self.held: dict[str, dict[str, Any]] = {url: {} for url in (CDS, EDS, LDS, RDS)}

    def ask(self, url: str, *names: str, **more: Any) -> Any:
        return self.stream.on_request(delta_request(url, names, **more), self.snapshot, self.now)

    def get(self) -> Any:
        return self.stream.next_response(self.snapshot, self.now)

    def ack(self, response: Any, *names: str, drop: tuple[str, ...] = ()) -> Any:
        held = self.held[response.type_url]
        held.update((each.name, each) for each in response.resources)
        for name in response.removed_resources:
            held.pop(name, None)
        return self.ask(response.type_url, *names, unsubscribe=drop, nonce=response.nonce)

    def connect(self) -> None:
        """Subscribe to everything as Envoy does, and take it."""
        self.ask(CDS)
        if (clusters := self.get()) is not None:
            self.ack(clusters)
        if pools := tuple(self.snapshot.types[EDS].resources):
            self.ask(EDS, *pools)
            self.ack(self.get())
        self.ask(LDS)
        self.ack(self.get())
        self.ask(RDS, *ROUTES)
        self.ack(self.get())
        assert self.get() is None


def names_in(response: Any) -> list[str]:
    return sorted(each.name for each in response.resources)


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    peer = Peer(builder_of().build(plan_of({"m": {A: 1}})))
    assert peer.get() is None
    peer.ask("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret")
    peer.ask("")
    assert peer.get() is None
    peer.ask(EDS)
    assert peer.get() is None, "endpoints are asked for by name"


def test_a_fresh_envoy_gets_everything_once_and_each_with_its_version() -> None:
    snapshot = builder_of().build(plan_of({"m": {A: 1}, "n": {}}))
    peer = Peer(snapshot)
    peer.connect()
    for url in (CDS, EDS, LDS, RDS):
        assert peer.stream.settled(url, snapshot)
        published = snapshot.types[url].resources
        assert {name: each.version for name, each in peer.held[url].items()} == {
            name: each.version for name, each in published.items()
        }
        assert all(each.resource == published[name].box for name, each in peer.held[url].items())


def test_a_change_of_weights_costs_one_resource() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}, "c": {B: 3}})))
    peer.connect()
    peer.snapshot = builder.build(plan_of({"a": {A: 1}, "b": {B: 2}, "c": {B: 3}}))
    response = peer.get()
    assert (response.type_url, names_in(response)) == (EDS, ["pool/b"])
    assert response.system_version_info == peer.snapshot.version(EDS)
    assert not peer.stream.settled(EDS, peer.snapshot)
    peer.now += 0.25
    assert peer.ack(response) == Acked(EDS, response.system_version_info, 0.25)
    assert peer.ack(response) is None, "said once"
    assert peer.get() is None
    assert peer.stream.settled(EDS, peer.snapshot)


def test_a_slow_envoy_gets_the_newest_and_none_in_between() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})))
    peer.connect()
    for weight in range(2, 50):
        peer.snapshot = builder.build(plan_of({"a": {A: weight}}))
    response = peer.get()
    assert weights_of(response.resources[0].resource) == {A: 49}
    assert peer.get() is None


def test_an_envoy_that_comes_back_gets_only_what_differs() -> None:
    builder = builder_of()
    before = builder.build(plan_of({"a": {A: 1}, "b": {B: 1}, "gone": {B: 1}}))
    now = builder.build(plan_of({"a": {A: 1}, "b": {B: 2}}))
    held = {
        url: {each.name: each.version for each in before.types[url].resources.values()} for url in (CDS, EDS)
    }
    peer = Peer(now)
    peer.ask(CDS, held=held[CDS])
    peer.ask(EDS, *held[EDS], held=held[EDS])
    clusters, endpoints = peer.get(), peer.get()
    assert (names_in(clusters), list(clusters.removed_resources)) == ([], ["pool/gone"])
    assert (names_in(endpoints), list(endpoints.removed_resources)) == (["pool/b"], [])
    assert peer.get() is None


def test_an_envoy_that_comes_back_before_the_first_publish_is_told_later() -> None:
    builder = builder_of()
    snapshot = builder.build(plan_of({"a": {A: 1}}))
    peer = Peer(snapshot)
    same = snapshot.types[EDS].resources["pool/a"].version
    peer.stream.on_request(delta_request(EDS, ["pool/a"], held={"pool/a": same}), None, peer.now)
    assert peer.get() is None
    peer.snapshot = builder.build(plan_of({"a": {A: 2}}))
    assert names_in(peer.get()) == ["pool/a"]


def test_versions_held_of_what_is_not_wanted_do_not_count() -> None:
    peer = Peer(builder_of().build(plan_of({"a": {A: 1}})))
    peer.ask(EDS, held={"pool/a": "x", "pool/z": "y"})
    assert peer.get() is None


def test_a_refusal_is_said_and_never_loops() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}, "c": {}})))
    peer.connect()
    peer.snapshot = builder.build(plan_of({"a": {A: 2}, "b": {B: 2}, "c": {}}))
    refused = peer.get()
    answer = peer.ask(EDS, nonce=refused.nonce, error="bad weight")
    assert answer == Nacked(EDS, refused.system_version_info, "bad weight")
    assert not peer.stream.settled(EDS, peer.snapshot)
    for _ in range(3):
        assert peer.get() is None
        peer.now += 10
    peer.snapshot = builder.build(plan_of({"a": {A: 3}, "b": {B: 2}, "c": {}}))
    again = peer.get()
    assert names_in(again) == ["pool/a", "pool/b"], "what the refused one spoke of, and no more"
    assert isinstance(peer.ack(again), Acked)
    assert peer.stream.settled(EDS, peer.snapshot)


def test_a_late_refusal_is_sent_again_once() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.connect()
    peer.snapshot = builder.build(plan_of({"a": {A: 2}, "b": {B: 1}}))
    first = peer.get()
    peer.snapshot = builder.build(plan_of({"a": {A: 2}, "b": {B: 2}}))
    second = peer.get()
    assert names_in(second) == ["pool/b"]
    assert isinstance(peer.ask(EDS, nonce=first.nonce, error="no"), Nacked)
    third = peer.get()
    assert names_in(third) == ["pool/a"]
    assert isinstance(peer.ack(second), Acked)
    assert isinstance(peer.ask(EDS, nonce=third.nonce, error="no"), Nacked)
    assert peer.get() is None
    assert peer.ask(EDS, nonce="never-sent") is None


def test_names_come_and_go() -> None:
    peer = Peer(builder_of().build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.ask(EDS, "pool/a", "pool/b")
    peer.ack(peer.get())
    peer.ask(EDS, unsubscribe=["pool/a"])
    assert peer.get() is None
    peer.ask(EDS, "pool/a")
    assert names_in(peer.get()) == ["pool/a"]
    peer.ask(EDS, "pool/b")
    assert names_in(peer.get()) == ["pool/b"], "asked for anew is answered anew"


def test_what_does_not_exist_is_said_once_and_comes_later() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})))
    peer.ask(CDS)
    peer.ack(peer.get())
    peer.ask(EDS, "pool/a", "pool/late")
    response = peer.get()
    assert (names_in(response), list(response.removed_resources)) == (["pool/a"], ["pool/late"])
    peer.ack(response)
    assert peer.get() is None
    peer.snapshot = builder.build(plan_of({"a": {A: 1}, "late": {B: 1}}))
    assert [names_in(peer.get()), names_in(peer.get())] == [["pool/late"], ["pool/late"]], "CDS, EDS"


def test_everything_may_be_asked_for_by_its_sign_and_given_up() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}, "b": {B: 1}})))
    peer.ask(CDS, "*", "pool/a")
    peer.ack(peer.get())
    peer.ask(CDS, unsubscribe=["pool/a"])
    assert names_in(peer.get()) == ["pool/a"], "everything still covers it, and it wants an answer"
    peer.ask(CDS, "pool/b", unsubscribe=["*"])
    assert names_in(peer.get()) == ["pool/b"]
    peer.snapshot = builder.build(plan_of({"b": {B: 1}}))
    assert peer.get() is None, "what is not wanted does not go either"
    peer.ask(EDS, "*")
    assert peer.get() is None, "endpoints are asked for by name"


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


def test_endpoints_only_answers_unknown_pools_with_none_until_they_are_known() -> None:
    builder = builder_of()
    peer = Peer(builder.build(plan_of({"a": {A: 1}})), endpoints_only=True)
    peer.ask("", "pool/a", "pool/late")
    response = peer.get()
    assert names_in(response) == ["pool/a", "pool/late"]
    assert {each.name: weights_of(each.resource) for each in response.resources} == {
        "pool/a": {A: 1},
        "pool/late": {},
    }
    assert peer.stream.unknown(peer.snapshot) == {"pool/late"}
    peer.ack(response)
    assert peer.get() is None
    peer.snapshot = builder.build(plan_of({"late": {B: 2}}))
    response = peer.get()
    assert {each.name: weights_of(each.resource) for each in response.resources} == {
        "pool/a": {},
        "pool/late": {B: 2},
    }
    assert not response.removed_resources
    peer.ack(response)
    assert peer.stream.settled(EDS, peer.snapshot)
    peer.ask(CDS)
    assert peer.get() is None, "nothing but endpoints"


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
