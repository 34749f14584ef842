"""The parts of an Envoy's /config_dump, each found by its type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace_controller.gateway_check.findings import Tree, branch, items, text

MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"


class NotAnEnvoyError(ValueError):
    """What was read is no /config_dump of an Envoy."""


@dataclass(frozen=True, slots=True)
class Site:
    """A connection manager with its listener and the route configuration that it uses."""

    listener: Tree
    manager: Tree
    routes: Tree

    @property
    def name(self) -> str:
        """What the listener is called."""
        return text(self.listener, "name") or "without a name"


@dataclass(frozen=True, slots=True)
class Dump:
    """A configuration: the bootstrap, the clusters by name, and where requests come in."""

    bootstrap: Tree
    clusters: dict[str, Tree]
    sites: tuple[Site, ...]


def read_dump(page: Any) -> Dump:
    """The parts of a parsed /config_dump. Raises NotAnEnvoyError."""
    parts = {text(each, "@type").rpartition(".")[2]: each for each in items(page, "configs")}
    if "BootstrapConfigDump" not in parts or "ClustersConfigDump" not in parts:
        raise NotAnEnvoyError("it holds no bootstrap and clusters as an Envoy's /config_dump does")
    routes = {text(each, "name"): each for each in _routes(parts.get("RoutesConfigDump", {}))}
    return Dump(
        bootstrap=branch(parts["BootstrapConfigDump"], "bootstrap"),
        clusters={text(each, "name"): each for each in _clusters(parts["ClustersConfigDump"])},
        sites=tuple(_sites(parts.get("ListenersConfigDump", {}), routes)),
    )


def _clusters(part: Tree) -> Iterator[Tree]:
    for kind in ("static_clusters", "dynamic_warming_clusters", "dynamic_active_clusters"):
        for each in items(part, kind):
            yield branch(each, "cluster")


def _routes(part: Tree) -> Iterator[Tree]:
    for kind in ("static_route_configs", "dynamic_route_configs"):
        for each in items(part, kind):
            yield branch(each, "route_config")


def _listeners(part: Tree) -> Iterator[Tree]:
    for each in items(part, "static_listeners"):
        yield branch(each, "listener")
    for each in items(part, "dynamic_listeners"):
        yield branch(each, "active_state", "listener") or branch(each, "warming_state", "listener")


def _sites(part: Tree, routes: dict[str, Tree]) -> Iterator[Site]:
    for listener in _listeners(part):
        chains = [*items(listener, "filter_chains"), branch(listener, "default_filter_chain")]
        for each in (each for chain in chains for each in items(chain, "filters")):
            manager = branch(each, "typed_config")
            if text(manager, "@type").endswith(MANAGER):
                name = text(branch(manager, "rds"), "route_config_name")
                yield Site(listener, manager, branch(manager, "route_config") or routes.get(name, {}))
