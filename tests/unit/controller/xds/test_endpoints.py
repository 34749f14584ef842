"""The EDS message, put together of kept pieces, always equals one that is built afresh."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.projection.plan import Cells, Endpoint, Endpoints
from headrace_controller.xds.resources.endpoints import Assignment, WeightError
from headrace_controller.xds.resources.transport import tls_mark

addresses = st.tuples(
    st.sampled_from(["10.0.0.1", "10.0.0.2", "::1", "0:0:0:0:0:0:0:1", "host.example", "fe80::1%eth0", ""]),
    st.sampled_from([0, 1, 8000, 65535, 65536]),
)
fleets = st.lists(
    st.builds(
        lambda cell, address, weight: Endpoint(f"cell-{cell}", address[0], address[1], weight),
        st.integers(0, 50),
        addresses,
        st.integers(1, 10_000),
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=60)
@given(st.lists(fleets, min_size=1, max_size=5))
def test_a_kept_message_equals_a_fresh_one(history: list[list[Endpoint]]) -> None:
    kept = Assignment("m", "pool/m")
    last = b"?"
    for fleet in history:
        fresh = Assignment("m", "pool/m")
        expected = fresh.update(Endpoints.of(fleet))
        updated = kept.update(Endpoints.of(fleet))
        last = last if updated is None else updated
        assert last == expected
        assert kept.left_out == fresh.left_out


@given(
    st.lists(
        st.tuples(
            st.integers(1, 250), st.sampled_from([1, 8000, 65535]), st.integers(1, 1 << 23), st.booleans()
        ),
        max_size=6,
        unique_by=lambda each: each[:2],
    ),
    st.sampled_from(["pool/m", "pool/" + "long" * 60]),
)
def test_the_bytes_are_those_of_the_message_built_field_by_field(
    members: list[tuple[int, int, int, bool]], name: str
) -> None:
    rows = [(f"c{at}", f"10.0.0.{number}", port) for at, (number, port, _, _) in enumerate(members)]
    by_tls = [f"c{at}" for at, each in enumerate(members) if each[3]]
    expected = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    locality: Any = expected.endpoints.add() if members else None
    for (_, host, port), (_, _, weight, tls) in zip(rows, members, strict=True):
        each = locality.lb_endpoints.add()
        each.endpoint.address.socket_address.address = host
        each.endpoint.address.socket_address.port_value = port
        each.load_balancing_weight.value = weight
        if tls:
            each.metadata.CopyFrom(tls_mark())
    made = Assignment("m", name)
    made.update(Endpoints(Cells.of(rows, tls=by_tls), [1] * len(rows)))
    told = made.update(Endpoints(Cells.of(rows, tls=by_tls), [each[2] for each in members]))
    assert told in (None, expected.SerializeToString(deterministic=True))
    fresh = Assignment("m", name).update(Endpoints(Cells.of(rows, tls=by_tls), [each[2] for each in members]))
    assert fresh == expected.SerializeToString(deterministic=True)


def test_the_same_endpoints_are_no_change() -> None:
    assignment = Assignment("m", "pool/m")
    assert assignment.update(Endpoints.of([Endpoint("a", "10.0.0.1", 1, 5)])) is not None
    assert assignment.update(Endpoints.of([Endpoint("a", "10.0.0.1", 1, 5)])) is None
    assert assignment.update(Endpoints.of([Endpoint("a", "10.0.0.1", 1, 6)])) is not None


def test_an_endpoint_envoy_cannot_take_is_left_out_alone() -> None:
    """Envoy would refuse the whole pool for the first, and silently drop the second."""
    assignment = Assignment("m", "pool/m")
    fleet = [
        Endpoint("a", "10.0.0.1", 80, 5),
        Endpoint("b", "gpu7.example", 80, 5),
        Endpoint("c", "10.0.0.1", 80, 9),
    ]
    message = assignment.update(Endpoints.of(fleet))
    assert message is not None
    assert message.count(b"10.0.0.1") == 1
    assert [(each.cell_id, each.reason) for each in assignment.left_out] == [
        ("b", "gpu7.example:80 is no IP address and port"),
        ("c", "10.0.0.1:80 is also the address of a"),
    ]


@pytest.mark.parametrize("weights", [[0], [5, -1], [2**31, 2**31]])
def test_weights_that_envoy_refuses_change_nothing(weights: list[int]) -> None:
    assignment = Assignment("m", "pool/m")
    good = [Endpoint("a", "10.0.0.1", 80, 5)]
    assignment.update(Endpoints.of(good))
    with pytest.raises(WeightError, match="'m'"):
        assignment.update(
            Endpoints.of([Endpoint(str(n), f"10.0.0.{n}", 80, w) for n, w in enumerate(weights)])
        )
    assert assignment.update(Endpoints.of(good)) is None


def test_a_baseline_gives_everyone_the_same_weight() -> None:
    heavy, light = Assignment("m", "pool/m"), Assignment("m", "pool/m")
    assert heavy.update(Endpoints.of([Endpoint("a", "10.0.0.1", 80, 99)]), equal=True) == light.update(
        Endpoints.of([Endpoint("a", "10.0.0.1", 80, 1)])
    )


def test_endpoints_that_speak_tls_are_marked_and_a_change_of_it_is_told() -> None:
    assignment = Assignment("m", "pool/m")
    rows = [("a", "10.0.0.1", 1), ("b", "10.0.0.2", 1)]
    plain = assignment.update(Endpoints(Cells.of(rows), [1, 1]))
    mixed = assignment.update(Endpoints(Cells.of(rows, tls=["b"]), [1, 1]))
    assert plain is not None
    assert mixed is not None
    made = endpoint_pb2.ClusterLoadAssignment.FromString(mixed)
    a, b = made.endpoints[0].lb_endpoints
    assert not a.HasField("metadata")
    assert dict(b.metadata.filter_metadata["envoy.transport_socket_match"]) == {"headrace.tls": True}
    assert assignment.update(Endpoints(Cells.of(rows, tls=["b"]), [1, 1])) is None
    # The addresses are the same, and another of them speaks TLS now.
    others = [("b", "10.0.0.1", 1), ("a", "10.0.0.2", 1)]
    assert assignment.update(Endpoints(Cells.of(others, tls=["b"]), [1, 1])) is not None
