"""What a node may claim: its site, and addresses in its site's networks."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_controller.ingest.sessions import Session, Sessions
from headrace_controller.ingest.sites import Sites
from headrace_controller.ingest.validation import Rejection
from headrace_controller.inventory import Fleet
from headrace_controller.inventory.known import FleetKnowledge
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config

SITES = """
gateways: [{id: gw, host: 127.0.0.1}]
sites:
  east: {networks: [10.1.0.0/16, "fd00:1::/32"], nodes: ["east-*", special]}
  west: {networks: [10.2.0.0/16], nodes: ["west-?"]}
  open: {}
"""


def sites(text: str = SITES) -> Sites:
    return Sites(config.parse(text, ControllerSettings).sites)


@pytest.mark.parametrize(
    ("node", "site", "reason"),
    [
        ("east-17", "east", None),
        ("special", "east", None),
        ("west-1", "west", None),
        ("anything", "open", None),
        ("west-1", "east", "wrong_site"),
        ("east-17", "open", "wrong_site"),
        ("west-17", "west", "wrong_site"),
        ("east-17", "north", "unknown_site"),
    ],
)
def test_a_node_is_at_the_site_that_names_it(node: str, site: str, reason: str | None) -> None:
    rejection = sites().check_node(node, site)
    assert (rejection and rejection.reason) == reason


@pytest.mark.parametrize(
    ("site", "host", "fits"),
    [
        ("east", "10.1.2.3", True),
        ("east", "10.2.2.3", False),
        ("east", "fd00:1::5", True),
        ("east", "fd00:2::5", False),
        ("east", "::ffff:10.1.2.3", True),
        ("east", "::ffff:10.2.2.3", False),
        ("open", "192.0.2.1", True),
    ],
)
def test_cells_are_in_the_networks_of_their_site(site: str, host: str, fits: bool) -> None:
    rejection = sites().check_address(site, host)
    assert (rejection is None) is fits
    if rejection is not None:
        assert rejection.reason == "foreign_address"
        assert f"sites.{site}.networks" in rejection.detail


def test_without_sites_every_claim_stands() -> None:
    free = Sites()
    assert free.check_node("n", "anywhere") is None
    assert free.check_address("anywhere", "203.0.113.9") is None


def hello(node: str, site: str, **hosts: str) -> pb.Hello:
    facts = [
        pb.CellFacts(cell_id=cell, address=pb.Address(host=host, port=1)) for cell, host in hosts.items()
    ]
    return pb.Hello(node=node, site=site, incarnation=1, cells=facts)


def test_a_stolen_agent_can_claim_neither_another_site_nor_an_address_of_its_own() -> None:
    sessions = Sessions(sites())
    outcome = sessions.open(hello("west-1", "east", c1="10.1.0.1"), local=False)
    assert isinstance(outcome, Rejection)
    assert outcome.reason == "wrong_site"
    session = sessions.open(hello("west-1", "west", c1="10.2.0.1", c2="203.0.113.9"), local=False)
    assert isinstance(session, Session)
    assert session.cells == {"c1"}
    assert session.refused["c2"].reason == "foreign_address"


def test_a_later_hello_with_a_foreign_address_leaves_the_cell_where_it_is() -> None:
    """The bad word must move no traffic; nor may it take a cell that serves out of service."""
    fleet = Fleet(["gw"])
    sessions = Sessions(sites(), FleetKnowledge(fleet))
    first = hello("west-1", "west", c1="10.2.0.1")
    session = sessions.open(first, local=False)
    assert isinstance(session, Session)
    fleet.register("west-1", "west", first, 0.0)
    assert sessions.update(session, hello("west-1", "west", c1="203.0.113.9")) is None
    assert session.refused["c1"].reason == "foreign_address"
    assert session.cells == {"c1"}
    assert session.kept["c1"].address.host == "10.2.0.1"


def test_facts_in_force_do_not_outlive_the_networks_of_their_site() -> None:
    """A controller that starts anew with other networks knows the cell at an address that is foreign now."""
    fleet = Fleet(["gw"])
    fleet.register("west-1", "west", hello("west-1", "west", c1="10.9.0.1"), 0.0)
    session = Sessions(sites(), FleetKnowledge(fleet)).open(
        hello("west-1", "west", c1="203.0.113.9"), local=False
    )
    assert isinstance(session, Session)
    assert session.refused["c1"].reason == "foreign_address"
    assert session.cells == frozenset()


@pytest.mark.parametrize(
    ("sites_text", "said"),
    [
        ("east: {networks: [10.1.0.1/16]}", r"networks\[0\]"),
        ("east: {networks: [elsewhere]}", "networks"),
        ("east: {nodes: ['a b']}", "nodes"),
        ("east: {network: [10.0.0.0/8]}", "network"),
    ],
)
def test_wrong_settings_are_named(sites_text: str, said: str) -> None:
    text = f"gateways: [{{id: gw, host: 127.0.0.1}}]\nsites:\n  {sites_text}\n"
    with pytest.raises(config.ConfigError, match=said):
        config.parse(text, ControllerSettings)


def told(**changes: Any) -> set[str]:
    sessions = Sessions()
    session = sessions.open(hello("n", "s", **changes), local=False)
    assert isinstance(session, Session)
    return {why.reason for why in session.refused.values()}


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "::ffff:0.0.0.0", "fd00::1%eth0", "fe80::1", "::1"])
def test_no_way_of_writing_an_address_gets_past_the_check(host: str) -> None:
    assert told(c1=host) == {"bad_address"}
