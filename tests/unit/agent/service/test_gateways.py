"""The gateways of several controllers, together."""

from __future__ import annotations

from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_agent.service.gateways import MAX_GATEWAYS, Gateways
from headrace_pb.v1 import telemetry_pb2 as pb


def gateway(id_: str, host: str = "10.0.0.1", port: int = 0) -> pb.Gateway:
    return pb.Gateway(id=id_, host=host, port=port)


def test_the_union_by_id() -> None:
    gateways = Gateways(["a", "b"])
    assert [each.id for each in gateways.update("b", [gateway("g2"), gateway("g1", "10.9.9.9")])] == [
        "g1",
        "g2",
    ]
    union = gateways.update("a", [gateway("g1", "10.0.0.1", 443), gateway("g3")])
    assert [each.id for each in union] == ["g1", "g2", "g3"]
    assert union[0] == GatewayTarget("g1", "10.0.0.1", 443), "the first controller's word counts"


def test_a_gateway_that_no_controller_names_any_more_is_gone() -> None:
    gateways = Gateways(["a", "b"])
    gateways.update("a", [gateway("g1")])
    gateways.update("b", [gateway("g1"), gateway("g2")])
    assert [each.id for each in gateways.update("b", [])] == ["g1"]
    assert gateways.update("a", []) == ()


def test_a_controller_that_is_followed_no_more_has_no_say() -> None:
    gateways = Gateways(["a", "b"])
    gateways.update("a", [gateway("g1", "10.0.0.1")])
    gateways.update("b", [gateway("g1", "10.9.9.9"), gateway("g2")])
    gateways.follow(["b", "c"])
    assert [(each.id, each.host) for each in gateways.union] == [("g1", "10.9.9.9"), ("g2", "10.0.0.1")]
    assert gateways.update("a", [gateway("g9")]) == gateways.union, "its last word comes late"
    assert [each.id for each in gateways.update("c", [gateway("g3")])] == ["g1", "g2", "g3"]


def test_unusable_entries_are_left_out_and_the_number_is_bounded() -> None:
    gateways = Gateways(["a"])
    bad = [gateway("", "h"), gateway("g", ""), gateway("g", "h" * 300), gateway("g", "h", 70_000)]
    assert gateways.update("a", bad) == ()
    many = [gateway(f"g{i:04}") for i in range(MAX_GATEWAYS + 10)]
    assert len(gateways.update("a", many)) == MAX_GATEWAYS
