"""RDS: by the model that a request names, and by its size, to the cells that can take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.transform.v3 import transform_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.type.matcher.v3 import metadata_pb2, string_pb2, value_pb2
from envoy.type.v3 import range_pb2
from google.protobuf import struct_pb2

from headrace_controller.capability import SizeBound
from headrace_controller.projection.plan import PLAIN, PoolShape
from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.names import METADATA_NAMESPACE, ROUTES, class_name, cluster_name
from headrace_controller.xds.resources import replies
from headrace_controller.xds.resources.clusters import Baseline
from headrace_controller.xds.resources.wire import bearer, literal, packed, seconds, set_header, u32
from headrace_controller.xds.upstreams import PLAIN_UPSTREAM, Upstream

# Round-robin by weight names a heavy endpoint many times in a row; a retry must get past it.
RETRY_PICKS = 256

UPSTREAM_HEADER = "x-headrace-upstream"
MODELS_PATH = "/v1/models"
MODEL_HEADER = replies.MODEL_HEADER
TRANSFORM_FILTER = "envoy.filters.http.transform"


class RouteBuilder:
    """Builds the route configuration of a gateway.

    `aliases` are other names of models; `upstreams` say which keys go with the requests of a model.
    """

    def __init__(
        self,
        settings: EnvoySettings,
        baseline: Baseline | None = None,
        aliases: Mapping[str, str] | None = None,
        upstreams: Mapping[str, Upstream] | None = None,
    ) -> None:
        self._settings = settings
        self._baseline = baseline
        self._aliases = aliases or {}
        self._upstreams = upstreams or {}

    def build(self, models: Sequence[str], shapes: Mapping[str, PoolShape]) -> Any:
        """The route configuration for `models`, in their order; `shapes` of those that are not PLAIN.

        A request on one of `settings.paths` goes to the pool of the model that its body names, or,
        where the body names none, its x-headrace-model header. GET /v1/models and /v1/models/ID are
        answered here. Another path and an unknown model are 404, a body that is not JSON or names no
        model is 400: each a JSON error.
        """
        names = dict(self._names(models))
        listing = replies.model_list({name: shapes.get(model, PLAIN) for name, model in names.items()})
        routes = [
            *self._other_paths(),
            *(route for name, model in names.items() for route in self._by_body(name, model, shapes)),
            _error_route("unknown-model", _match(_names_model()), 404, replies.UNKNOWN_MODEL),
            *(self._by_header(name, model, shapes) for name, model in names.items()),
            *_model_routes({name: shapes.get(model, PLAIN) for name, model in names.items()}, listing),
            *self._other_errors(),
        ]
        host = route_components_pb2.VirtualHost(name=ROUTES, domains=["*"], routes=routes)
        return route_pb2.RouteConfiguration(
            name=ROUTES,
            virtual_hosts=[host],
            max_direct_response_body_size_bytes=u32(max(4096, len(listing.encode()))),
        )

    def _names(self, models: Sequence[str]) -> Iterator[tuple[str, str]]:
        """What clients may call a model, and the model. A model's own name goes before an alias."""
        yield from ((model, model) for model in models)
        known = set(models)
        for alias, model in sorted(self._aliases.items()):
            if model in known and alias not in known:
                yield alias, model

    def _by_body(self, name: str, model: str, shapes: Mapping[str, PoolShape]) -> Iterator[Any]:
        """The routes of requests whose body names the model, from the smallest class to the last."""
        named = _metadata("model", _exact(name))
        *small, last = _clusters(model, shapes.get(model, PLAIN))
        for cluster, bounds in small:
            for number, bound in enumerate(bounds):
                match = _match(named)
                _add_bound(match, bound)
                yield self._route(
                    f"{_route_name(cluster, name, model)}/{number}", match, cluster, name, model
                )
        cluster, _ = last
        yield self._route(_route_name(cluster, name, model), _match(named), cluster, name, model)

    def _by_header(self, name: str, model: str, shapes: Mapping[str, PoolShape]) -> Any:
        """The route of requests whose body names no model: how long they are is not known either."""
        cluster, _ = _clusters(model, shapes.get(model, PLAIN))[-1]
        match = _match()
        match.headers.add(name=MODEL_HEADER, string_match=string_pb2.StringMatcher(exact=name))
        # A form's own model field goes on as it is, so an alias is not translated here.
        return self._route(f"header/{name}", match, cluster, model, model)

    def _route(self, route_name: str, match: Any, cluster: str, name: str, model: str) -> Any:
        action = route_components_pb2.RouteAction(
            cluster=cluster,
            timeout=seconds(0),
            idle_timeout=seconds(self._settings.stream_idle_timeout_s),
        )
        if self._baseline is None and self._settings.retries:
            action.retry_policy.CopyFrom(_retry_policy(self._settings))
        route = route_components_pb2.Route(name=route_name, match=match, route=action)
        api_key = self._upstreams.get(model, PLAIN_UPSTREAM).api_key
        if api_key:
            route.request_headers_to_add.append(bearer(api_key))
        if name != model:
            route.typed_per_filter_config[TRANSFORM_FILTER].CopyFrom(packed(_renaming(model)))
        if self._settings.expose_upstream:
            route.response_headers_to_add.append(set_header(UPSTREAM_HEADER, "%UPSTREAM_REMOTE_ADDRESS%"))
        return route

    def _other_paths(self) -> list[Any]:
        """404 for every path that is neither passed on nor answered here; they stand before all others."""
        error = replies.no_path(self._settings.paths)
        elsewhere = _match()
        # Not one regular expression: Envoy refuses those of more than a hundred steps.
        for path in (*self._settings.paths, MODELS_PATH):
            _add_path(elsewhere, string_pb2.StringMatcher(exact=path), invert=True)
            _add_path(elsewhere, string_pb2.StringMatcher(prefix=f"{path}?"), invert=True)
        _add_path(elsewhere, string_pb2.StringMatcher(prefix=f"{MODELS_PATH}/"), invert=True)
        changed = route_components_pb2.RouteMatch(path_separated_prefix=MODELS_PATH)
        changed.headers.append(_method("GET", invert=True))
        return [
            _error_route("no-path", elsewhere, 404, error),
            _error_route("no-method", changed, 404, error),
        ]

    def _other_errors(self) -> list[Any]:
        unknown = _match()
        unknown.headers.add(name=MODEL_HEADER, present_match=True)
        form = _match()
        form.headers.add(
            name="content-type",
            string_match=string_pb2.StringMatcher(prefix="multipart/", ignore_case=True),
        )
        not_json = _match(_metadata("not_json", value_pb2.ValueMatcher(present_match=True)))
        return [
            _error_route("unknown-header-model", unknown, 404, replies.UNKNOWN_HEADER_MODEL),
            _error_route("form-without-model", form, 400, replies.FORM_WITHOUT_MODEL),
            _error_route("not-json", not_json, 400, replies.NOT_JSON),
            _error_route("no-model", _match(), 400, replies.NO_MODEL),
        ]


def _clusters(model: str, shape: PoolShape) -> list[tuple[str, Sequence[SizeBound]]]:
    """The clusters of a pool from the smallest class to the last, with what each takes."""
    if not shape.classes:
        return [(cluster_name(model), ())]
    return [(class_name(model, each.max_model_len), each.bounds) for each in shape.classes]


def _route_name(cluster: str, name: str, model: str) -> str:
    return cluster if name == model else f"alias/{name}/{cluster}"


def _add_bound(match: Any, bound: SizeBound) -> None:
    """Take only requests of known, small size, and of the output that the bound is for."""
    match.headers.add(name="content-length", range_match=range_pb2.Int64Range(start=0, end=bound.bytes_below))
    if bound.output_from is None:
        silent = _metadata("max_tokens", value_pb2.ValueMatcher(present_match=True))
        silent.invert = True
        match.dynamic_metadata.append(silent)
        return
    asked = range_pb2.DoubleRange(start=bound.output_from, end=bound.output_below)
    limit = value_pb2.ValueMatcher(double_match={"range": asked})
    match.dynamic_metadata.append(_metadata("max_tokens", limit))


def _renaming(model: str) -> Any:
    """What puts the model's own name into a body that calls it by another."""
    name = struct_pb2.Struct()
    name.update({"model": literal(model)})
    made = transform_pb2.TransformConfig()
    body = made.request_transformation.body_transformation
    body.body_format.json_format.CopyFrom(name)
    body.action = transform_pb2.BodyTransformation.MERGE
    return made


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


def _model_routes(names: Mapping[str, PoolShape], listing: str) -> list[Any]:
    """GET /v1/models, and each model's own entry, under its name as it is and percent-encoded."""
    routes = [_json_route("models", MODELS_PATH, 200, listing)]
    for name, shape in names.items():
        body = replies.model_entry(name, shape)
        for path in dict.fromkeys((name, quote(name, safe="/:@"), quote(name, safe=""))):
            if path.isascii() and path.isprintable():
                routes.append(_json_route(f"models/{path}", f"{MODELS_PATH}/{path}", 200, body))
    unknown = _match(prefix=f"{MODELS_PATH}/")
    unknown.headers.append(_method("GET"))
    return [*routes, _error_route("unknown-listed-model", unknown, 404, replies.UNKNOWN_LISTED_MODEL)]


def _json_route(name: str, path: str, status: int, body: str) -> Any:
    return route_components_pb2.Route(
        name=name,
        match=route_components_pb2.RouteMatch(path=path, headers=[_method("GET")]),
        direct_response=route_components_pb2.DirectResponseAction(
            status=status, body=base_pb2.DataSource(inline_string=body)
        ),
        response_headers_to_add=[set_header("content-type", "application/json")],
    )


def _method(method: str, invert: bool = False) -> Any:
    return route_components_pb2.HeaderMatcher(
        name=":method", string_match=string_pb2.StringMatcher(exact=method), invert_match=invert
    )


def _add_path(match: Any, path: Any, invert: bool) -> None:
    match.headers.add(name=":path", string_match=path, invert_match=invert)


def _error_route(name: str, match: Any, status: int, body: Any) -> Any:
    return route_components_pb2.Route(
        name=name,
        match=match,
        direct_response=route_components_pb2.DirectResponseAction(status=status, body_format=body),
    )


def _match(*metadata: Any, prefix: str = "/") -> Any:
    return route_components_pb2.RouteMatch(prefix=prefix, dynamic_metadata=metadata)


def _names_model() -> Any:
    return _metadata("model", value_pb2.ValueMatcher(present_match=True))


def _exact(text: str) -> Any:
    return value_pb2.ValueMatcher(string_match=string_pb2.StringMatcher(exact=text))


def _metadata(key: str, value: Any) -> Any:
    return metadata_pb2.MetadataMatcher(
        filter=METADATA_NAMESPACE,
        path=[metadata_pb2.MetadataMatcher.PathSegment(key=key)],
        value=value,
    )
