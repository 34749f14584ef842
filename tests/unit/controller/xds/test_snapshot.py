"""Snapshots are consistent, and their versions change with their content only."""

from __future__ import annotations

from unittest.mock import Mock, create_autospec

import pytest
from envoy.config.route.v3 import route_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.capability import SizeBound
from headrace_controller.projection.plan import ClassShape, Endpoint, Endpoints, Plan, PoolShape
from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.names import CDS, EDS, LDS, RDS, TYPES
from headrace_controller.xds.refs import refs_of
from headrace_controller.xds.resources.clusters import build_cluster
from headrace_controller.xds.resources.routes.to_pools import PoolRoutes
from headrace_controller.xds.snapshot import InconsistentSnapshot, Snapshot, SnapshotBuilder, check
from tests.unit.controller.xds.builders import GATEWAY, Pools, builder_of, plan_of, weights_in

A, B = "10.0.0.1:8000", "10.0.0.2:8000"

models = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
pools = st.dictionaries(
    models,
    st.dictionaries(st.sampled_from([A, B, "::1:1"]), st.integers(1, 9)),
    max_size=4,
)


def test_a_snapshot_tells_all_that_an_envoy_needs() -> None:
    snapshot = builder_of().build(plan_of({"m": {A: 3}, "n": {}}))
    assert set(snapshot.types) == set(TYPES)
    assert set(snapshot.types[CDS].resources) == {"pool/m", "pool/n"} == set(snapshot.types[EDS].resources)
    assert snapshot.types[RDS].resources["headrace"].refs == {"pool/m", "pool/n"}
    assert weights_in(snapshot, "m") == {A: 3}
    assert weights_in(snapshot, "n") == {}


def test_an_unchanged_plan_is_the_same_snapshot() -> None:
    builder = builder_of()
    assert builder.build(plan_of({"m": {A: 1}})) is builder.build(plan_of({"m": {A: 1}}))


def test_new_weights_renew_the_endpoints_of_their_pool_only() -> None:
    builder = builder_of()
    before = builder.build(plan_of({"m": {A: 1}, "n": {B: 1}}))
    after = builder.build(plan_of({"m": {A: 2}, "n": {B: 1}}))
    assert weights_in(before, "m") == {A: 1}, "what was published does not change under its readers"
    assert weights_in(after, "m") == {A: 2}
    for url in (CDS, LDS, RDS):
        assert after.types[url] is before.types[url]
    assert after.version(EDS) > before.version(EDS)
    resources = after.types[EDS].resources
    assert resources["pool/n"] is before.types[EDS].resources["pool/n"]
    assert resources["pool/m"] is not before.types[EDS].resources["pool/m"]


def test_a_new_pool_keeps_the_clusters_and_the_listener_that_stand() -> None:
    builder = builder_of()
    before = builder.build(plan_of({"m": {A: 1}}))
    after = builder.build(plan_of({"m": {A: 1}, "n": {B: 1}}))
    assert after.types[CDS].resources["pool/m"] is before.types[CDS].resources["pool/m"]
    assert after.types[LDS] is before.types[LDS]
    for url in (CDS, RDS, EDS):
        assert after.version(url) > before.version(url)


def test_versions_rise_across_restarts() -> None:
    builder = builder_of(epoch_ns=999_999_999_999)
    for weight in range(1, 15):
        last = builder.build(plan_of({"m": {A: weight}}))
    restarted = builder_of(epoch_ns=1_000_000_000_000).build(plan_of({"m": {A: 1}}))
    for url in TYPES:
        assert restarted.version(url) > last.version(url)


def test_a_failed_build_leaves_the_next_one_right() -> None:
    """The first pool's message is already changed when the second pool's weights are refused."""
    builder = builder_of()
    good = builder.build(plan_of({"a": {A: 1}, "b": {B: 1}}))
    with pytest.raises(InconsistentSnapshot, match=r"gw-1.*'b'.*weight of 0"):
        builder.build(plan_of({"a": {A: 7}, "b": {B: 0}}))
    after = builder.build(plan_of({"a": {A: 7}, "b": {B: 2}}))
    assert (weights_in(good, "a"), weights_in(after, "a"), weights_in(after, "b")) == ({A: 1}, {A: 7}, {B: 2})
    assert after.version(EDS) > good.version(EDS)


def test_a_pool_that_forgets_a_gateway_is_refused() -> None:
    with pytest.raises(InconsistentSnapshot, match="'m' does not name the gateway 'gw-1'"):
        builder_of().build(Plan({"m": {"gw-2": ()}}))


def test_a_model_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InconsistentSnapshot):
        builder_of().build(plan_of({"\ud800": {}}))


@pytest.mark.parametrize(
    ("url", "what"), [(CDS, "RDS.*needs CDS"), (EDS, "CDS.*needs EDS"), (RDS, "LDS.*needs RDS")]
)
def test_a_missing_resource_is_named(url: str, what: str) -> None:
    snapshot = builder_of().build(plan_of({"m": {A: 1}}))
    types = {each: dict(kept.resources) for each, kept in snapshot.types.items()}
    check(types, "gw-1")
    types[url].clear()
    with pytest.raises(InconsistentSnapshot, match=what):
        check(types, "gw-1")


def test_endpoints_without_a_cluster_are_refused() -> None:
    snapshot = builder_of().build(plan_of({"m": {A: 1}}))
    types = {each: dict(kept.resources) for each, kept in snapshot.types.items()}
    types[RDS]["headrace"] = builder_of().build(plan_of({})).types[RDS].resources["headrace"]
    types[CDS].clear()
    with pytest.raises(InconsistentSnapshot, match="no cluster uses EDS 'pool/m'"):
        check(types, "gw-1")


def test_what_is_left_out_is_told_and_the_rest_published() -> None:
    builder = builder_of()
    before = builder.build(plan_of({"m": {A: 1}}))
    after = builder.build(plan_of({"m": {A: 1, "gpu.example:80": 1}}))
    assert [(each.pool, each.cell_id) for each in after.left_out] == [("m", "cell-1")]
    assert all(after.types[url] is before.types[url] for url in TYPES)
    assert builder.build(plan_of({"m": {A: 1}})).left_out == ()


@settings(deadline=None, max_examples=60)
@given(st.lists(pools, min_size=1, max_size=5))
def test_any_history_of_plans_ends_as_a_fresh_build_would(history: list[Pools]) -> None:
    builder = builder_of()
    last = None
    for each in history:
        snapshot = builder.build(plan_of(each))
        check({url: kept.resources for url, kept in snapshot.types.items()}, "gw-1")
        if last is not None:
            for url in TYPES:
                same = _contents(snapshot, url) == _contents(last, url)
                assert same == (snapshot.version(url) == last.version(url)), url
                assert snapshot.version(url) >= last.version(url)
        last = snapshot
    fresh = builder_of().build(plan_of(history[-1]))
    for url in TYPES:
        assert _contents(snapshot, url) == _contents(fresh, url)


def _contents(snapshot: object, url: str) -> dict[str, bytes]:
    return {name: each.box.value for name, each in snapshot.types[url].resources.items()}  # type: ignore[attr-defined]


def test_a_pool_in_classes_has_endpoints_as_a_whole_too() -> None:
    """An Envoy that has a cluster of its own asks for pool/MODEL, however many classes there are."""
    small, large = ClassShape(1024), ClassShape(8192)
    whole = Endpoints.of([Endpoint("a", "10.0.0.1", 8000, 7), Endpoint("b", "10.0.0.2", 8000, 9)])
    only_b = Endpoints.of([Endpoint("b", "10.0.0.2", 8000, 5)])
    plan = Plan(
        {"m": {GATEWAY.id: whole}},
        {"m": PoolShape(max_model_len=8192, classes=(small, large))},
        {"m": [{GATEWAY.id: whole}, {GATEWAY.id: only_b}]},
    )
    snapshot = builder_of().build(plan)
    assert set(snapshot.types[EDS].resources) == {"pool/m", "class/1024/m", "class/8192/m"}
    assert set(snapshot.types[CDS].resources) == {"class/1024/m", "class/8192/m"}
    assert weights_in(snapshot, "m") == {A: 7, B: 9}


def test_a_cell_that_is_left_out_of_every_class_is_named_once() -> None:
    bad = Endpoints.of([Endpoint("a", "no-address", 8000, 1)])
    shape = PoolShape(classes=(ClassShape(1024), ClassShape(8192)))
    plan = Plan({"m": {GATEWAY.id: bad}}, {"m": shape}, {"m": [{GATEWAY.id: bad}] * 2})
    assert [each.cell_id for each in builder_of().build(plan).left_out] == ["a"]


shapes = st.sampled_from(
    [
        PoolShape(),
        PoolShape(max_model_len=4096),
        PoolShape(health_path="", tls=True),
        PoolShape(
            max_model_len=4096, classes=(ClassShape(1024, (SizeBound(None, None, 9),)), ClassShape(4096))
        ),
    ]
)


@given(st.lists(st.dictionaries(st.sampled_from(["m", "n", "ö/m", "alias"]), shapes), min_size=2, max_size=5))
def test_what_is_kept_of_earlier_plans_makes_no_difference(plans: list[dict[str, PoolShape]]) -> None:
    """Byte for byte what a new builder makes, whatever pools came, went and changed before."""
    aliases = {"alias": "m", "other": "n"}
    kept = SnapshotBuilder(GATEWAY, EnvoySettings(), aliases=aliases)
    for each in plans:
        plan = shaped_plan(each)
        fresh = SnapshotBuilder(GATEWAY, EnvoySettings(), aliases=aliases).build(plan)
        made = kept.build(plan)
        for url in TYPES:
            assert contents(made, url) == contents(fresh, url)
        routes = route_pb2.RouteConfiguration.FromString(made.types[RDS].resources["headrace"].box.value)
        assert made.types[RDS].resources["headrace"].refs == refs_of(routes)


def shaped_plan(shapes: dict[str, PoolShape]) -> Plan:
    endpoints = {GATEWAY.id: Endpoints.of([Endpoint("c", "10.0.0.1", 8000, 1)])}
    return Plan(
        dict.fromkeys(shapes, endpoints), shapes, {m: [endpoints] * len(s.classes) for m, s in shapes.items()}
    )


def contents(snapshot: Snapshot, url: str) -> dict[str, tuple[str, bytes, frozenset[str]]]:
    resources = snapshot.types[url].resources
    return {name: (each.box.type_url, each.box.value, each.refs) for name, each in resources.items()}


def test_one_more_model_builds_one_cluster_and_its_own_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's adapters are models; with thousands of them one more must not build all anew."""
    clusters = Mock(wraps=build_cluster)
    routes = create_autospec(PoolRoutes._route, side_effect=PoolRoutes._route)
    monkeypatch.setattr("headrace_controller.xds.snapshot.build_cluster", clusters)
    monkeypatch.setattr(PoolRoutes, "_route", routes)
    builder = builder_of()
    pools: Pools = {f"m{number}": {A: 1} for number in range(50)}
    builder.build(plan_of(pools))
    assert (clusters.call_count, routes.call_count) == (50, 100), "a route by body and one by header each"
    builder.build(plan_of({**pools, "new": {A: 1}}))
    assert (clusters.call_count, routes.call_count) == (51, 102)
    builder.build(plan_of(pools))
    assert (clusters.call_count, routes.call_count) == (51, 102), "and one less builds nothing"
