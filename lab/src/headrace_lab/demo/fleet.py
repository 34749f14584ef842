"""Which cells stand at which site, and which port each program gets."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_lab.stack.ports import free_ports

HOST = "127.0.0.1"
GATEWAY = "gw-1"


@dataclass(frozen=True, slots=True)
class Cell:
    """One engine. `speed` is relative to a plain cell; `gpu` is "" where there is none; `host` is the
    address it serves on; gateways reach it at `front` where that is another port."""

    id: str
    port: int
    gpu: str = ""
    speed: float = 1.0
    max_model_len: int = 8192
    host: str = HOST
    front: int = 0

    @property
    def address(self) -> str:
        """Where gateways reach it, as host:port."""
        return f"{self.host}:{self.front or self.port}"

    @property
    def url(self) -> str:
        """Where agents reach it."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Site:
    """One node of a site. `exporter_port` is 0 where no GPU exporter runs; `node_name` is "" where
    the site has one node only, which is then named after it. Its programs serve on `host`."""

    name: str
    cells: tuple[Cell, ...]
    agent_port: int
    exporter_port: int = 0
    node_name: str = ""
    host: str = HOST

    @property
    def node(self) -> str:
        """The name of its GPU host."""
        return self.node_name or f"{self.name}-node"


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the controller and the gateway."""

    telemetry: int
    xds: int
    api: int
    gateway: int
    gateway_admin: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """All sites, the model that every cell serves, and the ports in the middle."""

    model: str
    sites: tuple[Site, ...]
    ports: Ports

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, site by site."""
        return tuple(cell for site in self.sites for cell in site.cells)

    @property
    def by_address(self) -> dict[str, str]:
        """Cell ids by host:port."""
        return {cell.address: cell.id for cell in self.cells}

    @property
    def api_url(self) -> str:
        """The controller's operator API."""
        return f"http://{HOST}:{self.ports.api}"

    @property
    def gateway_url(self) -> str:
        """Where requests go."""
        return f"http://{HOST}:{self.ports.gateway}"

    @property
    def gateway_admin_url(self) -> str:
        """Envoy's own administration pages."""
        return f"http://{HOST}:{self.ports.gateway_admin}"

    def cell(self, cell_id: str) -> Cell:
        """The cell of that id. Raises KeyError."""
        for cell in self.cells:
            if cell.id == cell_id:
                return cell
        raise KeyError(cell_id)

    def as_json(self) -> list[dict[str, object]]:
        """The fleet as results name it."""
        return [
            {"site": site.name, "cell": c.id, "speed": c.speed, "max_model_len": c.max_model_len}
            for site in self.sites
            for c in site.cells
        ]


SPEEDS = {"north": (1.0, 1.0, 0.6), "west": (1.4, 1.4, 1.4), "south": (1.0, 1.0, 1.0)}
"""Unequal on purpose: one slow cell, one faster site, so that weights differ."""


def middle(gateway_port: int = 0) -> Ports:
    """Ports of controller and Envoy; `gateway_port` 0 = chosen."""
    telemetry, xds, api, admin, gateway = free_ports(5)
    return Ports(telemetry, xds, api, gateway_port or gateway, admin)


def simulated(gateway_port: int = 0) -> Fleet:
    """Three sites of three simulated cells, a GPU exporter at each site."""
    ports = iter(free_ports(sum(map(len, SPEEDS.values())) + 2 * len(SPEEDS)))
    sites = []
    for number, (name, speeds) in enumerate(SPEEDS.items(), 1):
        cells = tuple(
            Cell(f"{name}-{i}", next(ports), f"GPU-{number:08x}-0000-4000-8000-{i:012x}", speed)
            for i, speed in enumerate(speeds, 1)
        )
        sites.append(Site(name, cells, next(ports), next(ports)))
    return Fleet("demo", tuple(sites), middle(gateway_port))
