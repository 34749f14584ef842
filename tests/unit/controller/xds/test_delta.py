"""One Envoy's delta stream: only what differs is sent, and what never is."""

from __future__ import annotations

from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.stream import Acked, Nacked
from tests.unit.controller.xds.builders import builder_of, delta_request, plan_of, weights_of
from tests.unit.controller.xds.delta_envoy import A, B, Peer, names_in


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
