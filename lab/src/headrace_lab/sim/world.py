"""A whole simulated installation: cells at sites, paths, gateway and, where the arm has one, controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace_controller.projection import Plan
from headrace_controller.projection.plan import ClassShape
from headrace_controller.settings import ControllerSettings
from headrace_lab.engine import Request
from headrace_lab.engine.profiles import profile
from headrace_lab.load.arrivals import Arrival
from headrace_lab.scenarios.fleets import FleetPlan
from headrace_lab.scenarios.networks import Network
from headrace_lab.scenarios.settings import Arm, ClientPlan, GatewayPlan
from headrace_lab.sim.agents import GATEWAY, SimAgent
from headrace_lab.sim.arms import controller_settings
from headrace_lab.sim.calendar import START_S, Calendar, VirtualClock
from headrace_lab.sim.cells import Condition, SimCell
from headrace_lab.sim.choosers import Chooser, LeastRequest, Oracle, PrefixHash, RoundRobin
from headrace_lab.sim.controller import SimController
from headrace_lab.sim.gateway import MODEL, Gateway
from headrace_lab.sim.health import HealthChecks
from headrace_lab.sim.jobs import Job
from headrace_lab.sim.paths import SitePath
from headrace_lab.sim.pickers import Picked, SimPickers

SETTLE_S = 6.0
"""From the start of the virtual time to the start of the load: agents connect, the barrier opens."""
FLUSH_S = 0.2
GPU_LOOK_S = 0.5
Policy = Literal["rr", "lr"]


@dataclass(frozen=True)
class Setup:
    """What stays the same over the arms of a comparison.

    `changes` are merged into the controller's settings, and `policy` is Envoy's under its weights:
    for trying out defaults. `reports` = the gateway reports requests to the controller; None = where
    the fleet has something that only they tell of. `heats` = GPUs are followed in every arm. `checks` =
    the gateway checks the cells' health, which changes nothing where none fails. `chooser` makes, for a
    world and a number, what places requests under weights in the place of Envoy's `policy`: a per-request
    picker, which hears of answers by the gateway's `on_first_token` and `on_end`.
    """

    fleet: FleetPlan
    network: Network
    gateway: GatewayPlan = field(default_factory=GatewayPlan)
    client: ClientPlan = field(default_factory=ClientPlan)
    thermal_s: float = 20.0
    changes: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy = "rr"
    reports: bool | None = None
    heats: bool = False
    checks: bool = False
    chooser: Callable[[World, int], Chooser] | None = None


class World:
    """One arm at work. `origin` is the start of the load on the virtual clock."""

    def __init__(self, setup: Setup, arm: Arm, seed: int) -> None:
        self.setup, self.arm, self.seed = setup, arm, seed
        self.clock = VirtualClock()
        self.calendar = Calendar(self.clock)
        self.origin = START_S + SETTLE_S
        self.paths = {site: SitePath(setup.network, site, self.origin, seed) for site in setup.fleet.sites}
        self.gateway = Gateway(
            self.calendar,
            self.paths,
            setup.gateway.retries if arm.retries else 0,
            setup.client.timeout_s,
            setup.fleet.bytes_per_token,
            setup.gateway.hedge_after_s if arm.lifecycle else 0.0,
        )
        self.cells = {plan.id: self._cell(plan.id) for plan in setup.fleet.plans}
        addresses = {
            name: (f"10.0.{number // 250}.{number % 250 + 1}", 8000) for number, name in enumerate(self.cells)
        }
        self.gateway.start(self.cells, {name: f"{host}:{port}" for name, (host, port) in addresses.items()})
        settings = controller_settings(arm, setup.changes)
        self.pickers = self._pickers(settings) if arm.picker and settings is not None else None
        self.choosers: list[Chooser] = [self._chooser(0)]
        self._told: list[dict[str, int]] = [{}]
        self.on_change: Callable[[float], None] = lambda now: None
        self._classes: tuple[ClassShape, ...] = ()
        self.plans: list[tuple[float, dict[str, int]]] = []
        self.gateway.pick = self._pick
        self.agents = {site: SimAgent(site, self._at(site), path) for site, path in self.paths.items()}
        self.controller: SimController | None = None
        if settings is None:
            self._told = [dict.fromkeys(self.cells, 1)]
            if setup.heats:
                self.calendar.enter(self.clock.now() + GPU_LOOK_S, self._look)
        else:
            self.controller = SimController(
                settings, self.calendar, list(self.agents.values()), self.cells, addresses, self._take_plan
            )
            if self.pickers is not None:
                self.pickers.attach(self.controller.loop)
            self.controller.start()
            if self._needs_reports():
                self.gateway.reports = []
                self.calendar.enter(self.clock.now() + FLUSH_S, self._flush)
        self._checks = (
            HealthChecks(self.calendar, self.cells, self.paths, setup.gateway, seed, self._apply)
            if setup.checks
            else None
        )
        self._apply(self.clock.now())

    @property
    def unhealthy(self) -> set[str]:
        """The cells that the gateway's health checks have marked."""
        return self._checks.unhealthy if self._checks is not None else set()

    @property
    def endpoints(self) -> set[str]:
        """The cells that the gateway holds."""
        return set().union(*self._told)

    def _cell(self, name: str) -> SimCell:
        plan = next(each for each in self.setup.fleet.plans if each.id == name)
        made = profile(
            plan.gpu,
            plan.model,
            max_model_len=plan.max_model_len,
            speed=plan.speed,
            thermal_s=self.setup.thermal_s,
        )
        return SimCell(plan, made, self.calendar, self.gateway, self.seed)

    def _at(self, site: str) -> list[SimCell]:
        return [cell for cell in self.cells.values() if cell.plan.site == site]

    def _needs_reports(self) -> bool:
        if self.setup.reports is not None:
            return self.setup.reports
        plans = self.setup.fleet.plans
        return len({plan.max_model_len for plan in plans}) > 1 or any(plan.refuse_share for plan in plans)

    # Who gets what.

    def _chooser(self, number: int) -> Chooser:
        seed = self.seed * 97 + number
        if self.arm.balancer == "oracle":
            return Oracle(tuple(self.cells), self._predict)
        if self.arm.balancer == "prefix_hash":
            return PrefixHash()
        if self.pickers is not None:
            return Picked(self.pickers, RoundRobin(seed))
        if self.setup.chooser is not None and self.arm.balancer == "weights":
            return self.setup.chooser(self, number)
        least = self.arm.balancer == "least_request" or (
            self.arm.balancer == "weights" and self.setup.policy == "lr"
        )
        if least:
            return LeastRequest(seed, self.gateway.active, self.setup.gateway.choices)
        return RoundRobin(seed)

    def _pickers(self, settings: ControllerSettings) -> SimPickers:
        late_s = self.setup.gateway.hedge_after_s if self.arm.lifecycle else 0.0
        cells, count = self.gateway.addresses, self.arm.pickers
        pickers = SimPickers(settings, self.calendar, cells, self.seed, count, late_s)
        self.gateway.follower = pickers
        return pickers

    def _say_lengths(self) -> None:
        for number, chooser in enumerate(self.choosers):
            if isinstance(chooser, Picked):
                chooser.length = self._classes[number].max_model_len if self._classes else 0

    def _pick(self, job: Job) -> Chooser:
        """The smallest class whose bounds the request keeps, by its size and the output it asks for; the
        last takes what is left."""
        output = job.arrival.max_tokens
        for chooser, shape in zip(self.choosers, self._classes, strict=False):
            for bound in shape.bounds:
                if bound.output_from is None or bound.output_below is None:
                    continue  # for requests that do not say how much they ask for
                if bound.output_from <= output < bound.output_below and job.body_bytes < bound.bytes_below:
                    return chooser
        return self.choosers[-1]

    def _predict(self, name: str, job: Job, now: float) -> float | None:
        cell, arrival = self.cells[name], job.arrival
        too_long = arrival.prompt_tokens + arrival.max_tokens > cell.plan.max_model_len
        path = self.paths[cell.plan.site]
        if too_long or cell.plan.refuse_share or cell.condition is not Condition.SERVING or not path.passes:
            return None
        request = Request("?", arrival.prompt_tokens, arrival.max_tokens, prefix=arrival.prefix)
        there = path.mean_s
        return max(there, cell.engine.predict_ttft(request, now, cell.coming_tokens)) + there

    def _apply(self, now: float) -> None:
        """Put what the gateway was told, less what its checks have marked, into force."""
        marked = self.unhealthy
        for chooser, told in zip(self.choosers, self._told, strict=True):
            chooser.update({name: weight for name, weight in told.items() if name not in marked}, now)
        self.on_change(now)

    def _take_plan(self, now: float, plan: Plan) -> None:
        endpoints = plan.pools[MODEL][GATEWAY]
        self.plans.append((now, dict(zip(endpoints.cells.ids, endpoints.weights, strict=True))))
        told = [each[GATEWAY] for each in plan.classes.get(MODEL, ())] or [endpoints]
        while len(self.choosers) < len(told):
            self.choosers.append(self._chooser(len(self.choosers)))
        del self.choosers[len(told) :]
        self._classes = plan.shape(MODEL).classes
        self._say_lengths()
        self._told = [dict(zip(each.cells.ids, each.weights, strict=True)) for each in told]
        self._apply(now)

    # What recurs.

    def _flush(self, now: float, _: object) -> None:
        self.calendar.enter(now + FLUSH_S, self._flush)
        reports = self.gateway.reports
        if reports and self.controller is not None:
            self.gateway.reports = []
            self.controller.report(now, reports)

    def _look(self, now: float, _: object) -> None:
        self.calendar.enter(now + GPU_LOOK_S, self._look)
        for cell in self.cells.values():
            cell.look(now, cell.engine.stats(now))

    # Running.

    def run(self, arrivals: Iterable[Arrival], until_s: float) -> list[Job]:
        """Send `arrivals` and let time pass until `until_s` seconds after the start of the load."""
        for arrival in arrivals:
            self.calendar.enter(self.origin + arrival.at_s, self.gateway.arrive, arrival)
        self.calendar.run(self.origin + until_s)
        return self.gateway.jobs

    def at(self, at_s: float, action: Callable[[float], None]) -> None:
        """Do something so many seconds after the start of the load."""
        self.calendar.enter(self.origin + at_s, lambda now, _: action(now))
