"""The bootstrap that an Envoy starts with: who it is and where its controller is."""

from __future__ import annotations

import ipaddress
from typing import Any

import yaml

from headrace_controller.xds.names import CONTROLLER_CLUSTER
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsSettings

Tree = dict[str, Any]

MAX_STREAMS = 32_768


def render(
    gateway_id: str,
    xds_address: HostPort,
    admin_port: int,
    tls: TlsSettings | None = None,
    *,
    delta: bool = False,
    load_reports: bool = True,
) -> str:
    """The bootstrap, as YAML, of the Envoy whose gateway id is `gateway_id`.

    With `delta` it takes differences instead of whole lists, with `load_reports` it tells the controller
    the load of each endpoint. `tls` holds the paths, on the Envoy's
    host, of the controller's CA and, for mutual TLS, of the Envoy's own certificate and key;
    without it the stream is not encrypted. The admin page listens on 127.0.0.1 only. Raises
    ValueError for TLS without a CA.
    """
    tree: Tree = {
        "node": {"id": gateway_id, "cluster": "headrace"},
        "admin": {"address": _socket(HostPort("127.0.0.1", admin_port))},
        "dynamic_resources": {
            # An Envoy that has never had a configuration is not ready, and says so.
            "cds_config": _from_ads("0s"),
            "lds_config": _from_ads("0s"),
            "ads_config": _ads(delta),
        },
        "static_resources": {"clusters": [_controller(xds_address, tls)]},
    }
    if load_reports:
        tree["cluster_manager"] = {"load_stats_config": _load_reports()}
    return yaml.safe_dump(tree, sort_keys=False)


def _ads(delta: bool) -> Tree:
    return {
        "api_type": "DELTA_GRPC" if delta else "GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [
            {
                "envoy_grpc": {
                    "cluster_name": CONTROLLER_CLUSTER,
                    # The default backs off to 30 s, which a restart of the controller is not worth.
                    "retry_policy": {
                        "retry_back_off": {"base_interval": "0.2s", "max_interval": "2s"},
                    },
                }
            }
        ],
    }


def _load_reports() -> Tree:
    return {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": CONTROLLER_CLUSTER}}],
    }


def _from_ads(initial_fetch_timeout: str) -> Tree:
    return {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": initial_fetch_timeout}


def _socket(address: HostPort) -> Tree:
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def _controller(address: HostPort, tls: TlsSettings | None) -> Tree:
    options = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {
            "http2_protocol_options": {"connection_keepalive": {"interval": "1s", "timeout": "3s"}}
        },
    }
    endpoint = {"endpoint": {"address": _socket(address)}}
    cluster: Tree = {
        "name": CONTROLLER_CLUSTER,
        "type": "STATIC" if _is_ip(address.host) else "STRICT_DNS",
        "connect_timeout": "1s",
        "circuit_breakers": {
            # With a picker each request that waits for its first token holds a stream here.
            "thresholds": [{"max_pending_requests": MAX_STREAMS, "max_requests": MAX_STREAMS}]
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options
        },
        "load_assignment": {
            "cluster_name": CONTROLLER_CLUSTER,
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }
    if tls is not None:
        cluster["transport_socket"] = _transport(address.host, tls)
    return cluster


def _transport(host: str, tls: TlsSettings) -> Tree:
    if tls.ca is None:
        raise ValueError("the Envoy needs ca, the certificate authority of the controller")
    kind = "IP_ADDRESS" if _is_ip(host) else "DNS"
    common: Tree = {
        "alpn_protocols": ["h2"],
        "validation_context": {
            "trusted_ca": {"filename": str(tls.ca)},
            "match_typed_subject_alt_names": [{"san_type": kind, "matcher": {"exact": host}}],
        },
    }
    if tls.cert is not None and tls.key is not None:
        common["tls_certificates"] = [
            {
                "certificate_chain": {"filename": str(tls.cert)},
                "private_key": {"filename": str(tls.key)},
            }
        ]
    context: Tree = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": common,
    }
    if not _is_ip(host):
        context["sni"] = host
    return {"name": "envoy.transport_sockets.tls", "typed_config": context}


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
