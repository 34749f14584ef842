"""LDS: the one listener of a gateway and its HTTP filters."""

from __future__ import annotations

from typing import Any

from envoy.config.core.v3 import address_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.http.json_to_metadata.v3 import json_to_metadata_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.http.transform.v3 import transform_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.type.matcher.v3 import regex_pb2
from google.protobuf import struct_pb2, wrappers_pb2

from headrace_controller.settings import (
    EnvoySettings,
    GatewayReportsSettings,
    GatewaySettings,
    PickerSettings,
)
from headrace_controller.xds.names import LISTENER, METADATA_NAMESPACE, ROUTES, STREAMS_KEY
from headrace_controller.xds.resources.access_logs import requests_log, tries_log
from headrace_controller.xds.resources.picking import FILTER, picker_filter
from headrace_controller.xds.resources.replies import local_replies
from headrace_controller.xds.resources.routes import TRANSFORM_FILTER
from headrace_controller.xds.resources.wire import from_ads, packed, seconds, u32

Json = json_to_metadata_pb2.JsonToMetadata

OUTPUT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""What a body may call its bound of the output, in tokens."""
PICK_FIELDS = ("stream", "user")
"""What the picker wants to know besides."""


def build_listener(
    gateway: GatewaySettings,
    settings: EnvoySettings,
    renames: bool = False,
    reports: GatewayReportsSettings | None = None,
    picker: PickerSettings | None = None,
) -> Any:
    """The listener on `gateway.listen`; its routes come by RDS. `renames`: some of them put another
    model's name into the body. `reports`: how it reports to the controller, `picker`: how it asks for a
    cell; None = not."""
    chain = listener_components_pb2.FilterChain(
        filters=[
            listener_components_pb2.Filter(
                name="envoy.filters.network.http_connection_manager",
                typed_config=packed(_connection_manager(gateway.id, settings, renames, reports, picker)),
            )
        ]
    )
    socket = address_pb2.SocketAddress(address=gateway.listen.host, port_value=gateway.listen.port)
    return listener_pb2.Listener(
        name=LISTENER,
        address=address_pb2.Address(socket_address=socket),
        filter_chains=[chain],
        stat_prefix=LISTENER,
        # The JSON filter holds the body whole before a route is chosen, so that a route's own
        # limit comes too late; retries hold it too.
        per_connection_buffer_limit_bytes=u32(settings.max_request_bytes),
    )


def _connection_manager(
    gateway: str,
    settings: EnvoySettings,
    renames: bool,
    reports: GatewayReportsSettings | None,
    picker: PickerSettings | None,
) -> Any:
    manager = http_connection_manager_pb2
    router = router_pb2.Router(upstream_log=[tries_log(reports)] if reports else [])
    # It holds bodies, so it stands there only where a route needs it.
    transform = manager.HttpFilter(
        name=TRANSFORM_FILTER, typed_config=packed(transform_pb2.TransformConfig())
    )
    return manager.HttpConnectionManager(
        stat_prefix=LISTENER,
        rds=manager.Rds(route_config_name=ROUTES, config_source=from_ads(0)),
        stream_idle_timeout=seconds(settings.stream_idle_timeout_s),
        delayed_close_timeout=seconds(settings.delayed_close_s),
        # An edge: what clients say in x-envoy-* headers must not change retries or time-outs.
        use_remote_address=wrappers_pb2.BoolValue(value=True),
        normalize_path=wrappers_pb2.BoolValue(value=True),
        local_reply_config=local_replies(settings),
        # By it `headrace explain --request` finds the pick.
        always_set_request_id_in_response=picker is not None,
        http_filters=[
            manager.HttpFilter(
                name="envoy.filters.http.json_to_metadata",
                typed_config=packed(_model_filter(picker is not None)),
            ),
            *_asking(gateway, picker),
            *([transform] if renames else []),
            manager.HttpFilter(name="envoy.filters.http.router", typed_config=packed(router)),
        ],
        access_log=[requests_log(reports)] if reports else [],
    )


def _asking(gateway: str, picker: PickerSettings | None) -> list[Any]:
    if picker is None:
        return []
    config = packed(picker_filter(gateway, picker))
    return [http_connection_manager_pb2.HttpFilter(name=FILTER, typed_config=config)]


def _model_filter(picks: bool) -> Any:
    """Reads `model`, the most output asked for and whether it streams from a JSON body; marks a body that
    should be JSON and is not. With `picks` also whose request it is."""
    not_json = Json.KeyValuePair(
        metadata_namespace=METADATA_NAMESPACE, key="not_json", value=struct_pb2.Value(bool_value=True)
    )
    rule = Json.Rule(
        selectors=[Json.Selector(key="model")],
        on_present=Json.KeyValuePair(
            metadata_namespace=METADATA_NAMESPACE, key="model", type=Json.ValueType.STRING
        ),
        on_error=not_json,
    )
    return Json(
        request_rules=Json.MatchRules(
            rules=[
                rule,
                *(_output_rule(name) for name in OUTPUT_FIELDS),
                _stream_rule(),
                *(_text_rule(name) for name in PICK_FIELDS if picks),
            ],
            # With parameters too, as in "application/json; charset=utf-8".
            # A GET has no body and no type; it must not count as a body that is not JSON.
            allow_empty_content_type=True,
            allow_content_types_regex=regex_pb2.RegexMatcher(regex=r"(?i)application/json\s*(;.*)?"),
        )
    )


def _output_rule(field: str) -> Any:
    return Json.Rule(
        selectors=[Json.Selector(key=field)],
        on_present=Json.KeyValuePair(
            metadata_namespace=METADATA_NAMESPACE, key="max_tokens", type=Json.ValueType.NUMBER
        ),
    )


def _stream_rule() -> Any:
    """Whether a stream is asked for, as the body says it: of all values only true matches a route."""
    return Json.Rule(
        selectors=[Json.Selector(key="stream")],
        on_present=Json.KeyValuePair(
            metadata_namespace=METADATA_NAMESPACE, key=STREAMS_KEY, type=Json.ValueType.PROTOBUF_VALUE
        ),
    )


def _text_rule(field: str) -> Any:
    return Json.Rule(
        selectors=[Json.Selector(key=field)],
        on_present=Json.KeyValuePair(
            metadata_namespace=METADATA_NAMESPACE, key=field, type=Json.ValueType.STRING
        ),
    )
