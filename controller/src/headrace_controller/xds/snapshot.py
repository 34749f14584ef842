"""Whole, checked sets of resources for one gateway, with versions that rise."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from envoy.config.endpoint.v3 import endpoint_pb2
from google.protobuf import any_pb2

from headrace_controller.projection.plan import Endpoints, Plan, PoolShape
from headrace_controller.settings import (
    EnvoySettings,
    GatewayReportsSettings,
    GatewaySettings,
    PickerSettings,
)
from headrace_controller.xds.names import CDS, EDS, LDS, RDS, SHORT, TYPES, class_name, cluster_name
from headrace_controller.xds.refs import refs_of
from headrace_controller.xds.resources.clusters import Baseline, build_cluster
from headrace_controller.xds.resources.endpoints import Assignment, LeftOut, WeightError
from headrace_controller.xds.resources.listeners import build_listener
from headrace_controller.xds.resources.picking import FOREIGN_HEADERS
from headrace_controller.xds.resources.routes import RouteBuilder
from headrace_controller.xds.resources.wire import packed
from headrace_controller.xds.upstreams import PLAIN_UPSTREAM, Upstream


class InconsistentSnapshot(Exception):  # noqa: N818
    """A plan that gives no publishable snapshot; what is published stays in force."""


# What every push makes anew is not frozen: that would take longer than the rest of making it.
@dataclass(slots=True, eq=False)
class Resource:
    """One resource as it goes over the wire. `refs` are the names of the resources it needs.

    Resources are compared by identity: a new content is a new object, and none is ever changed.
    """

    name: str
    version: str
    box: any_pb2.Any
    refs: frozenset[str] = frozenset()


def no_endpoints(name: str) -> Resource:
    """The endpoints of a pool that nobody knows: none."""
    message = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    return Resource(name, "none", packed(message))


@dataclass(slots=True, eq=False)
class TypeSnapshot:
    """All resources of one type, by name; `version` changes only with the content."""

    version: str
    resources: Mapping[str, Resource]


@dataclass(slots=True, eq=False)
class Snapshot:
    """All that one gateway is told; `types` is keyed by type URL.

    `left_out` names the endpoints of the plan that Envoy could not be told of, and why.
    """

    gateway: str
    types: Mapping[str, TypeSnapshot]
    left_out: tuple[LeftOut, ...] = ()

    def version(self, type_url: str) -> str:
        """The version of one type."""
        return self.types[type_url].version


@dataclass(slots=True)
class _Pool:
    """What is kept of one pool, or class of one: its message, and the resource last made from it."""

    assignment: Assignment
    resource: Resource | None = None


@dataclass(frozen=True, slots=True)
class _Cluster:
    """One cluster of a plan: a pool, or a class of it (`number`), under its name.

    A pool in classes has endpoints as a whole too, for Envoys that have a cluster of their own.
    """

    name: str
    model: str
    shape: PoolShape
    number: int | None = None
    endpoints_only: bool = False


class SnapshotBuilder:
    """Builds the snapshots of one gateway, and keeps what did not change.

    `aliases` are other names of models, `upstreams` say how the engines of a model are spoken to,
    `reports` how gateways report to the controller, `picker` how they ask it for cells; None = not at all.
    `epoch_ns` (Unix time) starts every version, so that a later builder's versions are higher. An
    unchanged plan gives the same `Snapshot` object; a change of weights makes only the EDS
    resources of its pools anew. A build that raises changes no version.
    """

    def __init__(
        self,
        gateway: GatewaySettings,
        envoy: EnvoySettings,
        *,
        baseline: Baseline | None = None,
        epoch_ns: int = 0,
        aliases: Mapping[str, str] | None = None,
        upstreams: Mapping[str, Upstream] | None = None,
        reports: GatewayReportsSettings | None = None,
        picker: PickerSettings | None = None,
    ) -> None:
        self._gateway = gateway
        self._picker = picker
        self._reports = reports
        self._envoy = envoy
        self._baseline: Baseline | None = baseline
        self._epoch = f"{epoch_ns:020d}"
        self._count = 0
        self._pools: dict[str, _Pool] = {}
        self._aliases = dict(aliases or {})
        self._upstreams = dict(upstreams or {})
        self._routes = RouteBuilder(
            envoy, baseline, self._aliases, self._upstreams, FOREIGN_HEADERS if picker is not None else ()
        )
        self._models: tuple[str, ...] | None = None
        self._shapes: Mapping[str, PoolShape] = {}
        self._clusters: tuple[_Cluster, ...] = ()
        self._static: dict[str, Mapping[str, Resource]] = {}
        self._last: Snapshot | None = None

    def build(self, plan: Plan) -> Snapshot:
        """The snapshot for `plan`. Raises InconsistentSnapshot."""
        version = f"{self._epoch}-{self._count + 1:010d}"
        models = tuple(sorted(plan.pools))
        same = models == self._models and (plan.shapes is self._shapes or plan.shapes == self._shapes)
        clusters = self._clusters if same else tuple(_clusters(models, plan))
        try:
            endpoints = [self._assign(cluster, plan, version) for cluster in clusters]
            static = self._static if same else self._build_static(models, plan, clusters, version)
        except (WeightError, UnicodeError) as error:
            raise InconsistentSnapshot(f"gateway {self._gateway.id!r}: {error}") from error
        named = {resource.name: resource for resource in endpoints}
        if same and self._last is not None:
            made = self._last.types
            told = _unless_same(made[EDS], named, version)
            return self._publish(made if told is made[EDS] else {**made, EDS: told})
        types = {**static, EDS: named}
        check(types, self._gateway.id, {each.name for each in clusters if each.endpoints_only})
        self._models, self._shapes, self._static = models, plan.shapes, static
        self._clusters = clusters
        self._pools = {cluster.name: self._pools[cluster.name] for cluster in clusters}
        return self._publish(self._made(types, version))

    def _made(self, types: Mapping[str, Mapping[str, Resource]], version: str) -> Mapping[str, TypeSnapshot]:
        """The types of a snapshot: those of the last one, all of them where nothing changed."""
        last = self._last.types if self._last else {}
        made = {url: _unless_same(last.get(url), resources, version) for url, resources in types.items()}
        return last if all(made[url] is last.get(url) for url in TYPES) else made

    def _publish(self, types: Mapping[str, TypeSnapshot]) -> Snapshot:
        last = self._last
        # Once, although a cell may be left out of several classes.
        left_out = tuple(
            dict.fromkeys([each for pool in self._pools.values() for each in pool.assignment.left_out])
        )
        if last is not None and types is last.types:
            if left_out == last.left_out:
                return last
        else:
            self._count += 1
        self._last = Snapshot(self._gateway.id, types, left_out)
        return self._last

    def _assign(self, cluster: _Cluster, plan: Plan, version: str) -> Resource:
        name = cluster.name
        pool = self._pools.get(name) or _Pool(Assignment(cluster.model, name))
        serialised = pool.assignment.update(self._of_gateway(cluster, plan), equal=self._baseline is not None)
        if serialised is not None and (pool.resource is None or serialised != pool.resource.box.value):
            pool.resource = Resource(name, version, any_pb2.Any(type_url=EDS, value=serialised))
        self._pools[name] = pool
        assert pool.resource is not None, "the first update always gives a message"
        return pool.resource

    def _of_gateway(self, cluster: _Cluster, plan: Plan) -> Endpoints:
        model, number = cluster.model, cluster.number
        try:
            of_pool = plan.pools[model] if number is None else plan.classes[model][number]
            return of_pool[self._gateway.id]
        except (KeyError, IndexError):
            raise InconsistentSnapshot(
                f"pool {model!r} does not name the gateway {self._gateway.id!r}"
            ) from None

    def _build_static(
        self, models: tuple[str, ...], plan: Plan, clusters: Iterable[_Cluster], version: str
    ) -> dict[str, Mapping[str, Resource]]:
        """LDS, RDS and CDS, which depend on the models, their pools' shapes and the settings only."""
        listener = build_listener(
            self._gateway,
            self._envoy,
            renames=bool(self._aliases),
            reports=self._reports,
            picker=self._picker,
        )
        routes = self._routes.build(models, plan.shapes)
        box = any_pb2.Any(type_url=RDS, value=routes.value)
        return {
            CDS: self._clusters_of(clusters, version),
            LDS: {
                listener.name: self._keep_same(
                    LDS, listener.name, packed(listener), refs_of(listener), version
                )
            },
            RDS: {routes.name: self._keep_same(RDS, routes.name, box, routes.refs, version)},
        }

    def _clusters_of(self, clusters: Iterable[_Cluster], version: str) -> Mapping[str, Resource]:
        """The clusters of a plan. One is built only where its pool is new, or has another shape."""
        before = {cluster.name: cluster for cluster in self._clusters}
        made: dict[str, Resource] = {}
        for cluster in clusters:
            if cluster.endpoints_only:
                continue
            name = cluster.name
            if before.get(name) == cluster:
                made[name] = self._static[CDS][name]
                continue
            upstream = self._upstreams.get(cluster.model, PLAIN_UPSTREAM)
            message = build_cluster(
                name, self._envoy, self._baseline, cluster.shape, upstream, picks=self._picker is not None
            )
            made[name] = self._keep_same(CDS, name, packed(message), refs_of(message), version)
        return made

    def _keep_same(
        self, url: str, name: str, box: any_pb2.Any, refs: frozenset[str], version: str
    ) -> Resource:
        kept = self._static.get(url, {}).get(name)
        if kept is not None and kept.box.value == box.value:
            return kept
        return Resource(name, version, box, refs)


def _clusters(models: Iterable[str], plan: Plan) -> Iterable[_Cluster]:
    for model in models:
        shape = plan.shape(model)
        yield _Cluster(cluster_name(model), model, shape, endpoints_only=bool(shape.classes))
        for number, each in enumerate(shape.classes):
            yield _Cluster(class_name(model, each.max_model_len), model, shape, number)


_NEEDS = {LDS: RDS, RDS: CDS, CDS: EDS}


def check(
    types: Mapping[str, Mapping[str, Resource]], gateway: str, endpoints_only: Collection[str] = ()
) -> None:
    """Raise InconsistentSnapshot unless all that a resource refers to is there, under its name.

    Endpoints need a cluster, except those named in `endpoints_only`.
    """
    for url, needed in _NEEDS.items():
        for resource in types[url].values():
            # Not by a difference of sets: it would go through all the keys once for each resource.
            missing = sorted(ref for ref in resource.refs if ref not in types[needed])
            if missing:
                raise InconsistentSnapshot(
                    f"gateway {gateway!r}: {SHORT[url]} {resource.name!r} needs "
                    f"{SHORT[needed]} {missing[0]!r}, which is not there"
                )
    used = {ref for each in types[CDS].values() for ref in each.refs}.union(endpoints_only)
    unused = sorted(types[EDS].keys() - used)
    if unused:
        raise InconsistentSnapshot(f"gateway {gateway!r}: no cluster uses EDS {unused[0]!r}")


def _unless_same(last: TypeSnapshot | None, resources: Mapping[str, Resource], version: str) -> TypeSnapshot:
    # Resources are equal where they are the same.
    return last if last is not None and last.resources == resources else TypeSnapshot(version, resources)
