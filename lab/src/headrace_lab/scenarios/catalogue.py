"""The scenario file as a whole: read, checked, and looked up by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from headrace_lab.scenarios.fleets import FleetPlan
from headrace_lab.scenarios.loads import LoadClass, TraceLoad
from headrace_lab.scenarios.networks import Network
from headrace_lab.scenarios.settings import Arm, ClientPlan, Counting, GatewayPlan, Scenario
from headrace_lab.scenarios.timelines import FaultKind, Stress
from headrace_shared.config import Name, Settings, parse

FILE = "scenarios.yaml"
Load = Annotated[LoadClass | TraceLoad, Field(discriminator="kind")]
T = TypeVar("T")


class Catalogue(Settings):
    """The whole file. `tiers` are multiples of the unloaded P95 TTFT, by name, rising."""

    version: Literal[1]
    tiers: dict[Name, float] = Field(min_length=1)
    payload_bytes_per_token: tuple[float, ...] = Field(min_length=1)
    fleets: dict[Name, FleetPlan]
    networks: dict[Name, Network]
    loads: dict[Name, Load]
    faults: dict[Name, FaultKind]
    stresses: dict[Name, Stress]
    arms: dict[Name, Arm]
    gateway: GatewayPlan = GatewayPlan()
    client: ClientPlan = ClientPlan()
    counting: Counting = Counting()
    matrix_loads: tuple[Name, ...] = Field(min_length=1)
    matrix_traces: tuple[Name, ...] = ()
    matrix_arms: tuple[Name, ...] = Field(min_length=1)
    scenarios: dict[Name, Scenario]

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        problems = [*self._matrix_problems()]
        for name, scenario in self.scenarios.items():
            problems += [f"scenarios.{name}.{each}" for each in self._scenario_problems(scenario)]
        tiers = list(self.tiers.values())
        if tiers != sorted(set(tiers)) or tiers[0] <= 1:
            problems.append("tiers must rise, and all be above 1")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _matrix_problems(self) -> list[str]:
        return [
            *_unknown("matrix_loads", self.matrix_loads, self.loads),
            *_unknown("matrix_traces", self.matrix_traces, self.loads),
            *_unknown("matrix_arms", self.matrix_arms, self.arms),
        ]

    def _scenario_problems(self, scenario: Scenario) -> list[str]:
        fleets = [scenario.fleet, *(v.fleet for v in scenario.variants.values() if v.fleet)]
        loads = [scenario.load, *(v.load for v in scenario.variants.values() if v.load)]
        problems = [
            *_unknown("fleet", fleets, self.fleets),
            *_unknown("load", loads, self.loads),
            *_unknown("arms", scenario.arms, self.arms),
            *_unknown("networks", [scenario.network, *scenario.networks], self.networks),
            *_unknown("kinds", scenario.kinds, self.faults),
            *_unknown("lead.stresses", scenario.lead.stresses if scenario.lead else (), self.stresses),
        ]
        if not problems:
            problems += self._strange_sites(scenario)
        return problems

    def _strange_sites(self, scenario: Scenario) -> list[str]:
        sites = self.fleets[scenario.fleet].sites
        problems = []
        for name in (scenario.network, *scenario.networks):
            network = self.networks[name]
            named = {*network.paths, *(change.site for change in network.changes)}
            problems += [
                f"networks: {name} has a path to {site}, which fleet {scenario.fleet} has not"
                for site in sorted(named - set(sites))
            ]
        return problems

    def scenario(self, name: str) -> Scenario:
        """The scenario of that name. Raises KeyError that lists the names."""
        return _find(self.scenarios, name, "scenario")

    def fleet(self, name: str) -> FleetPlan:
        """The fleet of that name. Raises KeyError that lists the names."""
        return _find(self.fleets, name, "fleet")

    def load(self, name: str) -> LoadClass | TraceLoad:
        """The load class or trace of that name. Raises KeyError that lists the names."""
        return _find(self.loads, name, "load")

    def network(self, name: str) -> Network:
        """The network of that name. Raises KeyError that lists the names."""
        return _find(self.networks, name, "network")

    def arm(self, name: str) -> Arm:
        """The arm of that name. Raises KeyError that lists the names."""
        return _find(self.arms, name, "arm")

    def fault(self, name: str) -> FaultKind:
        """The kind of fault of that name. Raises KeyError that lists the names."""
        return _find(self.faults, name, "kind of fault")

    def stress(self, name: str) -> Stress:
        """The stress time line of that name. Raises KeyError that lists the names."""
        return _find(self.stresses, name, "stress")


def _unknown(field: str, wanted: list[str] | tuple[str, ...], known: dict[str, T]) -> list[str]:
    return [
        f"{field}: {name!r} is not defined; there are {', '.join(sorted(known))}"
        for name in wanted
        if name not in known
    ]


def _find(known: dict[str, T], name: str, what: str) -> T:
    if name not in known:
        raise KeyError(f"no {what} is called {name!r}; there are {', '.join(sorted(known))}")
    return known[name]


def read(text: str, path: str = FILE) -> Catalogue:
    """Read a scenario file's text; `path` names it in errors. Raises ConfigError."""
    return parse(text, Catalogue, path)


@cache
def packaged() -> Catalogue:
    """The scenario file that comes with the lab."""
    return read(files("headrace_lab.scenarios").joinpath(FILE).read_text(encoding="utf-8"))
