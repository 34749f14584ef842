"""The whole route configuration: all routes in the order in which Envoy tries them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envoy.config.route.v3 import route_components_pb2, route_pb2

from headrace_controller.projection.plan import PLAIN, PoolShape
from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.names import ROUTES
from headrace_controller.xds.resources import replies
from headrace_controller.xds.resources.clusters import Baseline
from headrace_controller.xds.resources.routes import answered
from headrace_controller.xds.resources.routes.to_pools import PoolRoutes, clusters_of
from headrace_controller.xds.resources.wire import field_of, u32
from headrace_controller.xds.upstreams import Upstream

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
        self._paths = settings.paths
        self._remove_headers = tuple(remove_headers)
        self._aliases = aliases or {}
        self._to_pools = PoolRoutes(settings, baseline, upstreams or {})
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
            *_serialised(answered.other_paths(self._paths)),
            *(each.by_body for each in made.values()),
            *_serialised([answered.unknown_model()]),
            *(each.by_header for each in made.values()),
            *_serialised([answered.model_list(listing)]),
            *(each.listed for each in made.values()),
            *_serialised([answered.unknown_listed(), *answered.other_errors()]),
        )
        return Routes(
            ROUTES,
            self._configuration(routes, len(listing.encode())),
            frozenset().union(*(each.clusters for each in made.values())),
        )

    def _configuration(self, routes: Iterable[bytes], listing_bytes: int) -> bytes:
        host = route_components_pb2.VirtualHost(name=ROUTES, domains=["*"]).SerializeToString()
        around = route_pb2.RouteConfiguration(
            name=ROUTES,
            max_direct_response_body_size_bytes=u32(max(4096, listing_bytes)),
            request_headers_to_remove=self._remove_headers,
        )
        head: bytes = around.SerializeToString()
        return head + field_of(_HOSTS, b"".join((host, *routes)))

    def _of_name(self, name: str, model: str, shape: PoolShape) -> _OfName:
        """The routes of one name of a model, as they were where nothing that they hang on is new."""
        last = self._made.get(name)
        if last is not None and last.model == model and last.shape == shape:
            return last
        entry = replies.model_entry(name, shape)
        by_body = b"".join(_serialised(self._to_pools.by_body(name, model, shape)))
        by_header = b"".join(_serialised([self._to_pools.by_header(name, model, shape)]))
        listed = b"".join(_serialised(answered.listed(name, entry)))
        clusters = frozenset(cluster for cluster, _ in clusters_of(model, shape))
        return _OfName(model, shape, entry, by_body, by_header, listed, clusters)

    def _names(self, models: Sequence[str]) -> Iterator[tuple[str, str]]:
        """What clients may call a model, and the model. A model's own name goes before an alias."""
        yield from ((model, model) for model in models)
        known = set(models)
        for alias, model in sorted(self._aliases.items()):
            if model in known and alias not in known:
                yield alias, model


def _serialised(routes: Iterable[Any]) -> Iterator[bytes]:
    """Routes as they stand in a virtual host; the same content gives the same bytes."""
    return (field_of(_ROUTES, route.SerializeToString(deterministic=True)) for route in routes)
