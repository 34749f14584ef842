"""A fleet of the scenario file on this machine: nodes, ports and GPU names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace_lab.demo.fleet import HOST, Cell, Fleet, Site, middle
from headrace_lab.scenarios import CellPlan, FleetPlan
from headrace_lab.stack.ports import free_ports


@dataclass(frozen=True, slots=True)
class Place:
    """Where a site's programs run when there is a WAN before it: their network namespace, their
    address, and the address at which they reach the controller."""

    namespace: str
    host: str
    near: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything stands. `fleet.sites` has one entry a node, several may be of one site.
    `places` is empty where all run side by side on the loopback address. `uplinks` are the ports at which
    sites reach the controller where relays stand between them. `thermal_s` is the time constant of the
    GPUs' temperature, 0 = their profile's."""

    fleet: Fleet
    plans: dict[str, CellPlan]
    bytes_per_token: float
    places: dict[str, Place] = field(default_factory=dict)
    thermal_s: float = 0.0
    uplinks: dict[str, int] = field(default_factory=dict)

    def cells_of_node(self, node: str) -> tuple[str, ...]:
        """Ids of a node's cells."""
        return tuple(cell.id for site in self.fleet.sites if site.node == node for cell in site.cells)

    def nodes_of_site(self, name: str) -> tuple[str, ...]:
        """Names of a site's nodes."""
        return tuple(site.node for site in self.fleet.sites if site.name == name)

    def as_json(self) -> list[dict[str, object]]:
        """The fleet as results name it."""
        return [
            {
                "site": plan.site,
                "cell": plan.id,
                "gpu": plan.gpu,
                "model": plan.model,
                "speed": plan.speed,
                "max_model_len": plan.max_model_len,
                "pcie_contention": plan.pcie_contention,
                "refuse_share": plan.refuse_share,
            }
            for plan in self.plans.values()
        ]


def lay_out(
    plan: FleetPlan,
    *,
    node_per_cell: bool = False,
    places: dict[str, Place] | None = None,
    thermal_s: float = 0.0,
    relayed: bool = False,
) -> Layout:
    """Choose ports for a fleet: one node a site, or one a cell; `relayed` = cells and controller are reached
    through relays, each at a port of its own. Raises NoFreePortError."""
    places = places or {}
    plans = {each.id: each for each in plan.plans}
    groups = list(_groups(plans, node_per_cell))
    between = len(plans) + len(plan.sites) if relayed else 0
    ports = iter(free_ports(len(plans) + 2 * len(groups) + between))
    sites = []
    for number, (site, node, members) in enumerate(groups, 1):
        host = places[site].host if site in places else HOST
        cells = tuple(
            Cell(
                each.id,
                next(ports),
                f"GPU-{number:08x}-0000-4000-8000-{i:012x}",
                each.speed,
                each.max_model_len,
                host,
                next(ports) if relayed else 0,
            )
            for i, each in enumerate(members, 1)
        )
        sites.append(Site(site, cells, next(ports), next(ports), node, host))
    fleet = Fleet(f"lab-{plan.model}", tuple(sites), middle())
    uplinks = {site: next(ports) for site in plan.sites} if relayed else {}
    return Layout(fleet, plans, plan.bytes_per_token, places, thermal_s, uplinks)


def _groups(plans: dict[str, CellPlan], node_per_cell: bool) -> Iterator[tuple[str, str, list[CellPlan]]]:
    """Site, node and cells of each node."""
    by_site: dict[str, list[CellPlan]] = {}
    for plan in plans.values():
        by_site.setdefault(plan.site, []).append(plan)
    for site, members in by_site.items():
        if node_per_cell:
            yield from ((site, f"{each.id}-node", [each]) for each in members)
        else:
            yield site, f"{site}-node", members
