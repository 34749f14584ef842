"""RDS: one route a model, by the `model` that the body names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.type.matcher.v3 import metadata_pb2, regex_pb2, string_pb2, value_pb2
from google.protobuf import wrappers_pb2

from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.names import METADATA_NAMESPACE, ROUTES, cluster_name
from headrace_controller.xds.resources.clusters import Baseline
from headrace_controller.xds.resources.replies import ASKED_MODEL, error_format, model_list
from headrace_controller.xds.resources.wire import packed, seconds, set_header, u32

# Round-robin by weight names a heavy endpoint many times in a row; a retry must get past it.
RETRY_PICKS = 256

UPSTREAM_HEADER = "x-headrace-upstream"

UNKNOWN_MODEL = error_format(
    f"The model '{ASKED_MODEL}' does not exist here; GET /v1/models lists the models.",
    "invalid_request_error",
    "model",
    "model_not_found",
)
NO_PATH = error_format(
    "This path is not served here; the gateway passes on completions, chat completions and what else "
    "its envoy.paths setting names.",
    "invalid_request_error",
    None,
    "path_not_served",
)
NOT_JSON = error_format(
    "The request body is not JSON; send valid JSON with Content-Type: application/json.",
    "invalid_request_error",
    None,
    "invalid_json",
)
NO_MODEL = error_format(
    "Nothing is served at this address without a model: send a JSON body with a 'model' "
    "(Content-Type: application/json), or GET /v1/models.",
    "invalid_request_error",
    "model",
    "model_missing",
)


def build_routes(models: Sequence[str], settings: EnvoySettings, baseline: Baseline | None) -> Any:
    """The route configuration for `models`, in their order.

    A body with a known model, on one of `settings.paths`, goes to its pool. GET /v1/models is the
    list of models. A body that is not JSON is 400; another path, an unknown model and anything
    else is 404: each a JSON error.
    """
    listing = model_list(models)
    host = route_components_pb2.VirtualHost(
        name=ROUTES,
        domains=["*"],
        routes=[
            *(_pool_route(model, settings, baseline) for model in models),
            *_other_routes(listing, settings),
        ],
    )
    return route_pb2.RouteConfiguration(
        name=ROUTES,
        virtual_hosts=[host],
        max_direct_response_body_size_bytes=u32(max(4096, len(listing.encode()))),
    )


def _pool_route(model: str, settings: EnvoySettings, baseline: Baseline | None) -> Any:
    action = route_components_pb2.RouteAction(
        cluster=cluster_name(model),
        timeout=seconds(0),
        idle_timeout=seconds(settings.stream_idle_timeout_s),
    )
    if baseline is None and settings.retries:
        action.retry_policy.CopyFrom(_retry_policy(settings))
    exact = value_pb2.ValueMatcher(string_match=string_pb2.StringMatcher(exact=model))
    route = route_components_pb2.Route(
        name=cluster_name(model),
        match=route_components_pb2.RouteMatch(
            safe_regex=regex_pb2.RegexMatcher(regex=_paths(settings)),
            dynamic_metadata=[_metadata("model", exact)],
        ),
        route=action,
    )
    if settings.expose_upstream:
        route.response_headers_to_add.append(set_header(UPSTREAM_HEADER, "%UPSTREAM_REMOTE_ADDRESS%"))
    return route


def _retry_policy(settings: EnvoySettings) -> Any:
    """On another host, and only while the client has got nothing."""
    policy = route_components_pb2.RetryPolicy(
        retry_on="connect-failure,refused-stream,reset",
        num_retries=u32(settings.retries),
        host_selection_retry_max_attempts=RETRY_PICKS,
        retry_back_off=route_components_pb2.RetryPolicy.RetryBackOff(
            base_interval=seconds(0.01), max_interval=seconds(0.1)
        ),
    )
    policy.retry_host_predicate.add(
        name="envoy.retry_host_predicates.previous_hosts",
        typed_config=packed(previous_hosts_pb2.PreviousHostsPredicate()),
    )
    return policy


def _paths(settings: EnvoySettings) -> str:
    return "|".join(re.escape(path) for path in settings.paths)


def _other_routes(listing: str, settings: EnvoySettings) -> list[Any]:
    present = value_pb2.ValueMatcher(present_match=True)
    elsewhere = _match(_metadata("model", present))
    elsewhere.headers.add(
        name=":path",
        string_match=string_pb2.StringMatcher(
            safe_regex=regex_pb2.RegexMatcher(regex=rf"(?:{_paths(settings)})(?:\?.*)?")
        ),
        invert_match=True,
    )
    return [
        _error_route("no-path", elsewhere, 404, NO_PATH),
        _error_route("unknown-model", _match(_metadata("model", present)), 404, UNKNOWN_MODEL),
        _model_list_route(listing),
        _error_route("not-json", _match(_metadata("not_json", present)), 400, NOT_JSON),
        _error_route("no-model", _match(), 404, NO_MODEL),
    ]


def _model_list_route(listing: str) -> Any:
    method = route_components_pb2.HeaderMatcher(
        name=":method", string_match=string_pb2.StringMatcher(exact="GET")
    )
    return route_components_pb2.Route(
        name="models",
        match=route_components_pb2.RouteMatch(path="/v1/models", headers=[method]),
        direct_response=route_components_pb2.DirectResponseAction(
            status=200, body=base_pb2.DataSource(inline_string=listing)
        ),
        response_headers_to_add=[set_header("content-type", "application/json")],
    )


def _error_route(name: str, match: Any, status: int, body: Any) -> Any:
    return route_components_pb2.Route(
        name=name,
        match=match,
        direct_response=route_components_pb2.DirectResponseAction(status=status, body_format=body),
    )


def _match(*metadata: Any) -> Any:
    return route_components_pb2.RouteMatch(
        prefix="/", dynamic_metadata=metadata, case_sensitive=wrappers_pb2.BoolValue(value=True)
    )


def _metadata(key: str, value: Any) -> Any:
    return metadata_pb2.MetadataMatcher(
        filter=METADATA_NAMESPACE,
        path=[metadata_pb2.MetadataMatcher.PathSegment(key=key)],
        value=value,
    )
