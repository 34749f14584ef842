"""The bootstrap says who the Envoy is and how to reach its controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_controller.picker.service import MAX_STREAMS
from headrace_controller.xds.bootstrap import render
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsSettings

EXAMPLE = Path(__file__).parents[4] / "deploy" / "envoy" / "bootstrap.yaml"


def tree(address: HostPort, tls: TlsSettings | None = None) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(render("gw-1", address, 9901, tls))
    return loaded


def cluster(address: HostPort, tls: TlsSettings | None = None) -> dict[str, Any]:
    (only,) = tree(address, tls)["static_resources"]["clusters"]
    loaded: dict[str, Any] = only
    return loaded


def test_the_node_is_the_gateway_and_the_admin_page_is_local() -> None:
    made = tree(HostPort("10.0.0.9", 18001))
    assert made["node"]["id"] == "gw-1"
    assert made["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 9901}
    assert "layered_runtime" not in made


@pytest.mark.parametrize(
    ("host", "kind"), [("10.0.0.9", "STATIC"), ("::1", "STATIC"), ("controller.example", "STRICT_DNS")]
)
def test_the_controller_is_found_by_address_or_by_name(host: str, kind: str) -> None:
    made = cluster(HostPort(host, 18001))
    assert made["type"] == kind
    assert "transport_socket" not in made


def test_tls_checks_the_controllers_name_and_shows_the_envoys_certificate() -> None:
    tls = TlsSettings(ca=Path("/c/ca.pem"), cert=Path("/c/cert.pem"), key=Path("/c/key.pem"))
    context = cluster(HostPort("controller.example", 1), tls)["transport_socket"]["typed_config"]
    common = context["common_tls_context"]
    assert context["sni"] == "controller.example"
    assert common["validation_context"]["match_typed_subject_alt_names"] == [
        {"san_type": "DNS", "matcher": {"exact": "controller.example"}}
    ]
    assert common["tls_certificates"][0]["private_key"] == {"filename": "/c/key.pem"}
    assert common["alpn_protocols"] == ["h2"]


def test_differences_are_asked_for_only_when_wished() -> None:
    address = HostPort("10.0.0.9", 18001)
    delta = yaml.safe_load(render("gw-1", address, 9901, delta=True))
    whole = tree(address)
    assert delta["dynamic_resources"]["ads_config"].pop("api_type") == "DELTA_GRPC"
    assert whole["dynamic_resources"]["ads_config"].pop("api_type") == "GRPC"
    assert delta == whole


def test_tls_without_an_authority_is_refused() -> None:
    with pytest.raises(ValueError, match="ca"):
        render("gw-1", HostPort("10.0.0.9", 1), 9901, TlsSettings())


def test_the_example_that_we_ship_is_what_render_writes() -> None:
    lines = EXAMPLE.read_text().splitlines(keepends=True)
    body = "".join(line for line in lines if not line.startswith("#"))
    assert body.strip() == render("gw-1", HostPort("127.0.0.1", 18001), 9901).strip()


def test_as_many_requests_may_wait_for_their_first_token_as_the_picker_takes() -> None:
    (threshold,) = cluster(HostPort("10.0.0.9", 18001))["circuit_breakers"]["thresholds"]
    assert threshold["max_requests"] == threshold["max_pending_requests"] == MAX_STREAMS
