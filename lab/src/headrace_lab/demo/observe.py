"""What the controller says of the cells and what Envoy itself holds."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from headrace_lab.demo.fleet import GATEWAY, Fleet
from headrace_shared.clock import Clock

POLL_S = 0.2
TIMEOUT_S = 2.0
KEPT = 20_000
TROUBLES = (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError, AttributeError)
"""An API that is away, or answers in another form than it should."""


@dataclass(frozen=True, slots=True)
class CellView:
    """One cell as the operator API shows it; `weight` is 0 where it has none at the gateway."""

    site: str
    engine: str
    state: str
    cause: str
    pressure: float | None
    weight: int
    in_flight: float | None
    error_rate: float | None
    signals: Mapping[str, float | None]
    fallback: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The fleet at one moment, `at` seconds on the lab's clock."""

    at: float
    cells: Mapping[str, CellView]
    published: bool = False
    connected: bool = False

    def ready(self) -> set[str]:
        """Ids of the READY cells."""
        return {cell_id for cell_id, view in self.cells.items() if view.state == "READY"}


@dataclass(frozen=True, slots=True)
class Host:
    """One endpoint in Envoy's own list; `healthy` = not marked failed or ejected by Envoy."""

    active: int
    healthy: bool
    weight: int


def read_sample(data: Mapping[str, Any], at: float) -> Sample:
    """Read the answer of GET /api/v1/cells. Raises KeyError, TypeError or ValueError."""
    return Sample(
        at=at,
        cells={str(cell["id"]): _read_cell(cell) for cell in data["cells"]},
        published=bool(data["published"]),
        connected=any(bool(gateway["connected"]) for gateway in data["gateways"]),
    )


def _read_cell(cell: Mapping[str, Any]) -> CellView:
    def number(key: str) -> float | None:
        value = cell.get(key)
        return None if value is None else float(value)

    return CellView(
        site=str(cell["site"]),
        engine=str(cell.get("engine", "")),
        state=str(cell["state"]),
        cause=str(cell.get("cause", "")),
        pressure=number("pressure"),
        weight=int(cell["weights"].get(GATEWAY) or 0),
        in_flight=number("in_flight"),
        error_rate=number("error_rate"),
        signals={str(k): None if v is None else float(v) for k, v in cell["signals"].items()},
        fallback=str(cell.get("fallback") or ""),
    )


def read_hosts(data: Mapping[str, Any]) -> dict[str, Host]:
    """Read Envoy's `/clusters?format=json`: endpoints by host:port, over all clusters."""
    hosts: dict[str, Host] = {}
    for cluster in data.get("cluster_statuses", []):
        for host in cluster.get("host_statuses", []):
            socket = host.get("address", {}).get("socket_address")
            if socket is None:
                continue
            stats = {stat["name"]: int(stat.get("value", 0)) for stat in host.get("stats", [])}
            health = host.get("health_status", {})
            bad = any(value is True for value in health.values())
            weight = int(host.get("weight", 1))
            hosts[f"{socket['address']}:{socket['port_value']}"] = Host(
                stats.get("rq_active", 0), not bad, weight
            )
    return hosts


def read_counter(page: str, name: str) -> float | None:
    """The sum of a counter over its series; None where the page does not know it."""
    family_name = name.removesuffix("_total")
    for family in text_string_to_metric_families(page):
        if family.name == family_name:
            return sum(sample.value for sample in family.samples if sample.name == name)
    return None


@dataclass(slots=True)
class History:
    """Samples in order of time, the newest `KEPT` of them."""

    samples: list[Sample] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Append one."""
        self.samples.append(sample)
        if len(self.samples) > KEPT:
            del self.samples[: KEPT // 10]

    @property
    def last(self) -> Sample | None:
        """The newest, if there is one."""
        return self.samples[-1] if self.samples else None

    def at(self, moment: float) -> Sample | None:
        """The newest sample not after `moment`."""
        index = bisect.bisect_right(self.samples, moment, key=lambda s: s.at)
        return self.samples[index - 1] if index else None


class Observer:
    """Asks the controller's API and Envoy's administration pages."""

    def __init__(self, session: aiohttp.ClientSession, fleet: Fleet, clock: Clock) -> None:
        self.history = History()
        self.trouble = ""
        self._session = session
        self._api = fleet.api_url
        self._admin = fleet.gateway_admin_url
        self._clock = clock

    async def sample(self) -> Sample:
        """Ask once and keep the answer. Raises one of TROUBLES."""
        asked = self._clock.now()
        sample = read_sample(await self._json(f"{self._api}/api/v1/cells"), asked)
        self.history.add(sample)
        return sample

    async def watch(self) -> None:
        """Sample until cancelled; `trouble` says what went wrong last time, "" if nothing."""
        while True:
            try:
                await self.sample()
                self.trouble = ""
            except TROUBLES as error:
                self.trouble = f"the controller's API: {type(error).__name__}: {error}"[:200]
            await asyncio.sleep(POLL_S)

    async def hosts(self) -> dict[str, Host]:
        """Envoy's endpoints now. Raises one of TROUBLES."""
        return read_hosts(await self._json(f"{self._admin}/clusters?format=json"))

    async def counter(self, name: str) -> float | None:
        """A counter on the controller's own metrics page. Raises one of TROUBLES."""
        async with self._session.get(f"{self._api}/metrics") as response:
            response.raise_for_status()
            return read_counter(await response.text(), name)

    async def picker(self) -> Any:
        """How the controller's picker stands. Raises one of TROUBLES."""
        return await self._json(f"{self._api}/api/v1/picker")

    async def events(self, limit: int) -> Any:
        """The newest entries of the controller's log. Raises one of TROUBLES."""
        return await self._json(f"{self._api}/api/v1/events?limit={limit}")

    async def page(self, url: str) -> str:
        """A page as text. Raises one of TROUBLES."""
        async with self._session.get(url) as response:
            response.raise_for_status()
            return await response.text()

    async def _json(self, url: str) -> Any:
        async with self._session.get(url) as response:
            response.raise_for_status()
            return await response.json(content_type=None)


def open_session() -> aiohttp.ClientSession:
    """A session with the observer's time-outs."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
