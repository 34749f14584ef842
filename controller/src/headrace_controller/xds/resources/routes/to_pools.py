"""The routes that pass a request on: to the pool of a model, or to one of its capability classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.transform.v3 import transform_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from google.protobuf import struct_pb2

from headrace_controller.capability import SizeBound
from headrace_controller.projection.plan import PoolShape
from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.names import class_name, cluster_name
from headrace_controller.xds.resources.clusters import Baseline, hedges
from headrace_controller.xds.resources.routes import matches
from headrace_controller.xds.resources.wire import bearer, literal, packed, seconds, set_header, u32
from headrace_controller.xds.upstreams import PLAIN_UPSTREAM, Upstream

# Round-robin by weight names a heavy endpoint many times in a row; a retry must get past it.
RETRY_PICKS = 256

UPSTREAM_HEADER = "x-headrace-upstream"
TRANSFORM_FILTER = "envoy.filters.http.transform"


class PoolRoutes:
    """Makes the routes of each name of a model; `upstreams` say which keys go with its requests."""

    def __init__(
        self, settings: EnvoySettings, baseline: Baseline | None, upstreams: Mapping[str, Upstream]
    ) -> None:
        self._settings = settings
        self._baseline = baseline
        self._upstreams = upstreams

    def by_body(self, name: str, model: str, shape: PoolShape) -> Iterator[Any]:
        """The routes of requests whose body names the model, from the smallest class to the last."""
        *small, last = clusters_of(model, shape)
        for cluster, bounds in small:
            for number, bound in enumerate(bounds):
                match = matches.model_is(name)
                matches.add_bound(match, bound)
                yield from self._hedged(
                    f"{_route_name(cluster, name, model)}/{number}", match, cluster, name, model
                )
        cluster, _ = last
        match = matches.model_is(name)
        yield from self._hedged(_route_name(cluster, name, model), match, cluster, name, model)

    def by_header(self, name: str, model: str, shape: PoolShape) -> Any:
        """The route of requests whose body names no model: how long they are is not known either."""
        cluster, _ = clusters_of(model, shape)[-1]
        # A form's own model field goes on as it is, so an alias is not translated here.
        return self._route(f"header/{name}", matches.header_is(name), cluster, model, model)

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
            matches.add_streams(streamed.match)
            streamed.route.ClearField("priority")
            # The first attempt is not ended by this time-out; it may still be the one that answers.
            streamed.route.hedge_policy.hedge_on_per_try_timeout = True
            streamed.route.retry_policy.per_try_timeout.CopyFrom(seconds(self._settings.hedge_after_s))
            yield streamed
        yield route

    def _route(self, route_name: str, match: Any, cluster: str, name: str, model: str) -> Any:
        route = route_components_pb2.Route(name=route_name, match=match, route=self._action(cluster))
        api_key = self._upstreams.get(model, PLAIN_UPSTREAM).api_key
        if api_key:
            route.request_headers_to_add.append(bearer(api_key))
        if name != model:
            route.typed_per_filter_config[TRANSFORM_FILTER].CopyFrom(packed(_renaming(model)))
        if self._settings.expose_upstream:
            route.response_headers_to_add.append(set_header(UPSTREAM_HEADER, "%UPSTREAM_REMOTE_ADDRESS%"))
        return route

    def _action(self, cluster: str) -> Any:
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
        return action


def clusters_of(model: str, shape: PoolShape) -> list[tuple[str, Sequence[SizeBound]]]:
    """The clusters of a pool from the smallest class to the last, with what each takes."""
    if not shape.classes:
        return [(cluster_name(model), ())]
    return [(class_name(model, each.max_model_len), each.bounds) for each in shape.classes]


def _route_name(cluster: str, name: str, model: str) -> str:
    return cluster if name == model else f"alias/{name}/{cluster}"


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
