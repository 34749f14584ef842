"""Which gateway an Envoy belongs to, and what is kept of a refusal."""

from __future__ import annotations

import pytest

from headrace_controller.xds.gateways import Gateways, shortened
from headrace_controller.xds.status import Hooks


def gateways() -> Gateways:
    nodes = {"gw-1": ["edge-?", "gw-2"], "gw-2": ["edge-*"]}
    return Gateways(["gw-1", "gw-2"], nodes, Hooks(), lambda: 0.0)


@pytest.mark.parametrize(
    ("node", "gateway"),
    [
        ("gw-1", "gw-1"),
        ("gw-2", "gw-2"),
        ("edge-7", "gw-1"),
        ("edge-77", "gw-2"),
        ("EDGE-7", None),
        ("", None),
    ],
)
def test_an_id_goes_before_patterns_and_the_first_pattern_before_the_second(
    node: str, gateway: str | None
) -> None:
    found = gateways().of_node(node)
    assert (found.id if found else None) == gateway


def test_strangers_are_counted_and_bounded() -> None:
    known = gateways()
    for number in range(100):
        known.refuse(f"stranger-{number}", "peer")
    known.refuse("stranger-99", "peer")
    assert len(known.strangers) == 64
    assert known.strangers["stranger-99"] == 2
    assert "stranger-0" not in known.strangers


def test_a_long_refusal_keeps_its_reason() -> None:
    message = 'name: "pool/m"\n' + "  field: 1\n" * 1000 + ": Proto constraint validation failed (why)"
    said = shortened(message)
    assert said.startswith('name: "pool/m" field: 1')
    assert said.endswith("validation failed (why)")
    assert len(said) < 1100
    assert shortened("bad\n weight") == "bad weight"
