"""RDS: by the model that a request names, and by its size, to the cells that can take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from headrace_controller.xds.names import METADATA_NAMESPACE, ROUTES, STREAMS_KEY, class_name, cluster_name
from headrace_controller.xds.resources import replies
from headrace_controller.xds.resources.clusters import Baseline, hedges
from headrace_controller.xds.resources.wire import bearer, field_of, literal, packed, seconds, set_header, u32
from headrace_controller.xds.upstreams import PLAIN_UPSTREAM, Upstream

# Round-robin by weight names a heavy endpoint many times in a row; a retry must get past it.
RETRY_PICKS = 256

UPSTREAM_HEADER = "x-headrace-upstream"
MODELS_PATH = "/v1/models"
MODEL_HEADER = replies.MODEL_HEADER
TRANSFORM_FILTER = "envoy.filters.http.transform"


_HOSTS = route_pb2.RouteConfiguration.DESCRIPTOR.fields_by_name["virtual_hosts"].number
_ROUTES = route_components_pb2.VirtualHost.DESCRIPTOR.fields_by_name["routes"].number


@dataclass(frozen=True, slots=True)
class Routes:
    """A serialised RouteConfiguration, its name, and the clusters that it needs."""

    name: str
    value: bytes
    refs: frozenset[str]


@dataclass(frozen=True, slots=True)
class _OfName:
    """What one name of a model adds: its entry in the list of models, and its serialised routes."""

    model: str
    shape: PoolShape
    entry: str
    by_body: bytes
    by_header: bytes
    listed: bytes
    clusters: frozenset[str]


class RouteBuilder:
    """Builds the route configuration of a gateway.

    `aliases` are other names of models; `upstreams` say which keys go with the requests of a model;
    `remove_headers` are those of clients that engines must not see.
    """

    def __init__(
        self,
        settings: EnvoySettings,
        baseline: Baseline | None = None,
        aliases: Mapping[str, str] | None = None,
        upstreams: Mapping[str, Upstream] | None = None,
        remove_headers: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._remove_headers = tuple(remove_headers)
        self._baseline = baseline
        self._aliases = aliases or {}
        self._upstreams = upstreams or {}
        self._made: dict[str, _OfName] = {}

    def build(self, models: Sequence[str], shapes: Mapping[str, PoolShape]) -> Routes:
        """The route configuration for `models`, in their order; `shapes` of those that are not PLAIN.

        A request on one of `settings.paths` goes to the pool of the model that its body names, or,
        where the body names none, its x-headrace-model header. GET /v1/models and /v1/models/ID are
        answered here. Another path and an unknown model are 404, a body that is not JSON or names no
        model is 400: each a JSON error.

        The routes of a name whose pool is as it was are those of the last call.
        """
        names = [(name, model, shapes.get(model, PLAIN)) for name, model in self._names(models)]
        made = {each[0]: self._of_name(*each) for each in names}
        self._made = made
        listing = replies.model_list(each.entry for each in made.values())
        routes = (
            *_serialised(self._other_paths()),
            *(each.by_body for each in made.values()),
            *_serialised([_error_route("unknown-model", _match(_names_model()), 404, replies.UNKNOWN_MODEL)]),
            *(each.by_header for each in made.values()),
            *_serialised([_json_route("models", MODELS_PATH, 200, listing)]),
            *(each.listed for each in made.values()),
            *_serialised([_unknown_listed(), *self._other_errors()]),
        )
        host = route_components_pb2.VirtualHost(name=ROUTES, domains=["*"]).SerializeToString()
        around = route_pb2.RouteConfiguration(
            name=ROUTES,
            max_direct_response_body_size_bytes=u32(max(4096, len(listing.encode()))),
            request_headers_to_remove=self._remove_headers,
        )
        value = around.SerializeToString() + field_of(_HOSTS, b"".join((host, *routes)))
        return Routes(ROUTES, value, frozenset().union(*(each.clusters for each in made.values())))

    def _of_name(self, name: str, model: str, shape: PoolShape) -> _OfName:
        """The routes of one name of a model, as they were where nothing that they hang on is new."""
        last = self._made.get(name)
        if last is not None and last.model == model and last.shape == shape:
            return last
        entry = replies.model_entry(name, shape)
        by_body = b"".join(_serialised(self._by_body(name, model, shape)))
        by_header = b"".join(_serialised([self._by_header(name, model, shape)]))
        listed = b"".join(_serialised(_listed(name, entry)))
        clusters = frozenset(cluster for cluster, _ in _clusters(model, shape))
        return _OfName(model, shape, entry, by_body, by_header, listed, clusters)

    def _names(self, models: Sequence[str]) -> Iterator[tuple[str, str]]:
        """What clients may call a model, and the model. A model's own name goes before an alias."""
        yield from ((model, model) for model in models)
        known = set(models)
        for alias, model in sorted(self._aliases.items()):
            if model in known and alias not in known:
                yield alias, model

    def _by_body(self, name: str, model: str, shape: PoolShape) -> Iterator[Any]:
        """The routes of requests whose body names the model, from the smallest class to the last."""
        named = _metadata("model", _exact(name))
        *small, last = _clusters(model, shape)
        for cluster, bounds in small:
            for number, bound in enumerate(bounds):
                match = _match(named)
                _add_bound(match, bound)
                yield from self._hedged(
                    f"{_route_name(cluster, name, model)}/{number}", match, cluster, name, model
                )
        cluster, _ = last
        yield from self._hedged(_route_name(cluster, name, model), _match(named), cluster, name, model)

    def _hedged(self, route_name: str, match: Any, cluster: str, name: str, model: str) -> Iterator[Any]:
        """The route; before it, where late answers are hedged, that of the same requests for a stream.

        Engines begin a stream before its first token, so one that has not begun is a sign. The answer
        that is not streamed begins when it is complete: how late it is says nothing.
        """
        route = self._route(route_name, match, cluster, name, model)
        if hedges(self._settings, self._baseline):
            streamed = route_components_pb2.Route()
            streamed.CopyFrom(route)
            streamed.name = f"stream/{route_name}"
            streamed.match.dynamic_metadata.append(
                _metadata(STREAMS_KEY, value_pb2.ValueMatcher(bool_match=True))
            )
            streamed.route.ClearField("priority")
            # The first attempt is not ended by this time-out; it may still be the one that answers.
            streamed.route.hedge_policy.hedge_on_per_try_timeout = True
            streamed.route.retry_policy.per_try_timeout.CopyFrom(seconds(self._settings.hedge_after_s))
            yield streamed
        yield route

    def _by_header(self, name: str, model: str, shape: PoolShape) -> Any:
        """The route of requests whose body names no model: how long they are is not known either."""
        cluster, _ = _clusters(model, shape)[-1]
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
        if hedges(self._settings, self._baseline):
            action.priority = base_pb2.HIGH  # whose retries hedges leave alone
        tries_again = self._baseline is None or self._settings.baseline_retries
        if tries_again and self._settings.retries:
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


def _listed(name: str, entry: str) -> Iterator[Any]:
    """GET of a model's own entry, under its name as it is and percent-encoded."""
    for path in dict.fromkeys((name, quote(name, safe="/:@"), quote(name, safe=""))):
        if path.isascii() and path.isprintable():
            yield _json_route(f"models/{path}", f"{MODELS_PATH}/{path}", 200, entry)


def _unknown_listed() -> Any:
    unknown = _match(prefix=f"{MODELS_PATH}/")
    unknown.headers.append(_method("GET"))
    return _error_route("unknown-listed-model", unknown, 404, replies.UNKNOWN_LISTED_MODEL)


def _serialised(routes: Iterable[Any]) -> Iterator[bytes]:
    """Routes as they stand in a virtual host; the same content gives the same bytes."""
    return (field_of(_ROUTES, route.SerializeToString(deterministic=True)) for route in routes)


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
