"""What a live run was asked for, with the scenario file's values where nothing was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace_lab.scenarios import Catalogue, FaultKind, FaultTimes, FleetPlan, LoadClass, Network, TraceLoad
from headrace_lab.scenarios.settings import Arm, Mode, Scenario, Variant


class AskError(ValueError):
    """An option that does not fit; the message says what does."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line; None or "" = as the scenario file has it. `settings` are merged over those of
    every arm's controller (simulations only)."""

    name: str
    kind: str = ""
    variant: str = ""
    arms: tuple[str, ...] = ()
    load: str = ""
    networks: tuple[str, ...] = ()
    rps: float | None = None
    seconds: float | None = None
    seed: int = 1
    json_path: Path | None = None
    keep_logs: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """A live run, every name looked up. `faults` is None where the scenario has none; without
    `networks` all programs stand side by side and there is no WAN."""

    options: Options
    catalogue: Catalogue
    scenario: Scenario
    fleet: FleetPlan
    load_name: str
    load: LoadClass | TraceLoad
    arms: dict[str, Arm]
    rps: float
    seconds: float
    kind: str
    fault: FaultKind | None
    faults: FaultTimes | None
    networks: dict[str, Network]

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.options.name

    @property
    def seed(self) -> int:
        """Fixes the load and who is struck."""
        return self.options.seed


def look_up(options: Options, catalogue: Catalogue, mode: Mode = "live") -> Ask:
    """Everything that the options name, for a live run or a simulation. Raises AskError."""
    try:
        scenario = catalogue.scenario(options.name)
        variant = _variant(scenario, options.variant)
        load_name = options.load or variant.load or scenario.load
        arms = {name: catalogue.arm(name) for name in options.arms or _own_arms(scenario, catalogue, mode)}
        kind = _kind(scenario, options.kind)
        fault = catalogue.fault(kind) if kind else None
        faults = scenario.faults
        if faults is not None and fault is not None:
            faults = faults.spaced(fault.every_s)
        fleet = catalogue.fleet(variant.fleet or scenario.fleet)
        load = catalogue.load(load_name)
        networks = {name: catalogue.network(name) for name in options.networks or scenario.networks}
    except KeyError as error:
        raise AskError(str(error.args[0])) from error
    if mode not in scenario.modes:
        raise AskError(f"{options.name} has no {mode} mode; run it with {' or '.join(scenario.modes)}")
    if len(networks) > 1 and not scenario.networks:
        raise AskError(
            f"{options.name} runs on one network and {len(networks)} are given; "
            "name one, or run each by itself"
        )
    strange = [name for name, arm in arms.items() if mode not in arm.modes]
    if strange:
        raise AskError(f"arm {strange[0]} has no {mode} mode; it runs {' and '.join(arms[strange[0]].modes)}")
    return Ask(
        options=options,
        catalogue=catalogue,
        scenario=scenario,
        fleet=fleet,
        load_name=load_name,
        load=load,
        arms=arms,
        rps=options.rps or variant.rps or scenario.rps,
        seconds=options.seconds or _seconds(scenario, mode, faults),
        kind=kind,
        fault=fault,
        faults=faults,
        networks=networks,
    )


def _own_arms(scenario: Scenario, catalogue: Catalogue, mode: Mode) -> list[str]:
    """The scenario's arms, without those that this mode has not."""
    return [name for name in scenario.arms if mode in catalogue.arm(name).modes]


def _seconds(scenario: Scenario, mode: Mode, faults: FaultTimes | None) -> float:
    """The scenario's own length, or longer where the faults of this kind need more."""
    if mode == "live" and scenario.lead is not None:
        return scenario.lead.live.seconds
    if faults is not None and faults != scenario.faults:
        return max(scenario.seconds, faults.over_s)
    return scenario.seconds


def _variant(scenario: Scenario, name: str) -> Variant:
    """What a variant puts in place; nothing where none is named."""
    if not name:
        return Variant()
    if name not in scenario.variants:
        there = ", ".join(scenario.variants) or "none"
        raise AskError(f"the scenario has no variant {name!r}; there are {there}")
    return scenario.variants[name]


def _kind(scenario: Scenario, name: str) -> str:
    if not scenario.kinds:
        if name:
            raise AskError("the scenario has no kinds of fault; leave out --kind")
        return ""
    if name and name not in scenario.kinds:
        raise AskError(f"--kind {name!r}: give one of {', '.join(scenario.kinds)}")
    return name or scenario.kinds[0]
