"""One Envoy's stream: what is sent, and what never is."""

from __future__ import annotations

from headrace_controller.xds.names import CDS, EDS, LDS, RDS
from headrace_controller.xds.stream import Acked, Nacked
from tests.unit.controller.xds.builders import builder_of, plan_of
from tests.unit.controller.xds.stream_envoy import ROUTES, A, B, Peer, names_in


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
