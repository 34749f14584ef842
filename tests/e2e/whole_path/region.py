"""A small region of real programs: cells, exporters, agents, a controller and an Envoy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from headrace_lab.demo import programs, settings_files
from headrace_lab.demo.fleet import HOST, Cell, Fleet, Site, middle
from headrace_lab.demo.observe import Host, Observer, open_session
from headrace_lab.stack.ports import free_ports
from headrace_lab.stack.program import Exit, Program, Spec, console_script
from headrace_lab.stack.stack import Stack, StopReport
from headrace_shared.clock import SystemClock

PATIENCE_S = 40.0
"""For what takes a moment on an idle machine; a busy one may need many times that."""
GRACE_S = 10.0
"""For an end on SIGTERM, of which 2 s are promised."""
HUNG_S = 1.5
HEARD_S = 1.0
# What an earlier test restarted comes back little by little: its weight must have stopped moving first.
RESTED_S = 1.5
AWAY = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True)
class Plan:
    """What the region is made of. `sites` names each site's cells; the GPUs of `roomy` sites show
    little memory in use, so that their cells weigh more than the others, whatever the load. `settings`
    are more of the controller's."""

    sites: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {"east": ("east-1", "east-2"), "west": ("west-1",)}
    )
    roomy: frozenset[str] = frozenset({"west"})
    exporters: bool = True
    baseline: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


class Region:
    """The programs by name: `cell ID`, `exporter SITE`, `agent SITE`, `controller`, `envoy`."""

    def __init__(self, fleet: Fleet, stack: Stack, session: aiohttp.ClientSession) -> None:
        self.fleet = fleet
        self.stack = stack
        self.session = session
        self.clock = SystemClock()
        self.observer = Observer(session, fleet, self.clock)
        self._specs: dict[str, Spec] = {}
        self._now: dict[str, str] = {}

    async def start(self, *specs: Spec) -> None:
        """Start programs that do not wait for each other; they need not be ready."""
        await self.stack.start(specs)
        for spec in specs:
            self._specs[spec.name] = spec
            self._now[spec.name] = spec.name

    def program(self, name: str) -> Program:
        """The program that runs, or ran last, under this name."""
        return self.stack.program(self._now[name])

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until the kernel has ended it."""
        self.program(name).kill(planned=True)
        async with asyncio.timeout(PATIENCE_S):
            await self.program(name).ended()

    async def sigterm(self, name: str) -> Exit:
        """SIGTERM; how it ended. It gets far longer than it is promised to need."""
        return await self.program(name).stop()

    async def restart(self, name: str) -> None:
        """Start it again as it was, on its old ports, and wait until it answers."""
        again = replace(self._specs[name], name=f"{name} again {len(self.stack.programs)}")
        await self.stack.start([again])
        self._now[name] = again.name
        await self.stack.wait_ready([again.name])

    async def hosts(self) -> dict[str, Host]:
        """Envoy's endpoints by cell id; the controller's own address, which it also lists, is left out."""
        names, found = self.fleet.by_address, await self.observer.hosts()
        return {names[address]: host for address, host in found.items() if address in names}

    async def weights(self) -> dict[str, int]:
        """The weights that Envoy holds, by cell id."""
        return {cell: host.weight for cell, host in (await self.hosts()).items()}

    async def settled(self, seconds: float) -> dict[str, int]:
        """Wait until the weights that Envoy holds have not changed for so long; the weights."""
        weights, since = await self.weights(), self.clock.now()

        async def same() -> bool:
            nonlocal weights, since
            if (now := await self.weights()) != weights:
                weights, since = now, self.clock.now()
            return self.clock.now() - since >= seconds

        await self.until(same, f"the weights have settled for {seconds:g} s")
        return weights

    async def cells(self) -> dict[str, dict[str, Any]]:
        """What the controller's API says of each cell."""
        return {each["id"]: each for each in (await self.view())["cells"]}

    async def view(self) -> Any:
        """What the controller's API says."""
        async with self.session.get(f"{self.fleet.api_url}/api/v1/cells") as response:
            response.raise_for_status()
            return await response.json()

    async def state(self, cell: str) -> str:
        """One cell's state."""
        return str((await self.cells())[cell]["state"])

    async def fault(self, cell: str, name: str) -> None:
        """Set a fault switch of a simulated cell."""
        url = f"{self.fleet.cell(cell).url}/lab/faults"
        async with self.session.post(url, json={"fault": name}) as response:
            assert response.status == 200

    async def story(self, cell: str) -> list[dict[str, str]]:
        """One cell's changes of state, newest last."""
        async with self.session.get(f"{self.fleet.api_url}/api/v1/events?limit=1000") as response:
            response.raise_for_status()
            return [event for event in (await response.json())["events"] if event["cell"] == cell]

    async def serving(self) -> float:
        """Wait until all cells are READY, their agents speak, and Envoy holds them as healthy; the
        seconds it took."""
        wanted = {cell.id for cell in self.fleet.cells}

        async def all_serve() -> bool:
            ready = {cell for cell, view in (await self.cells()).items() if ready_and_heard(view)}
            return wanted <= ready and wanted <= {c for c, h in (await self.hosts()).items() if h.healthy}

        return await self.until(all_serve, f"{sorted(wanted)} serve")

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, seconds: float = PATIENCE_S
    ) -> float:
        """Wait for `condition`; the seconds it took. An API that is away does not fulfil it."""
        began = self.clock.now()
        trouble = ""
        while (spent := self.clock.now() - began) < seconds:
            try:
                if await condition():
                    return spent
                trouble = ""
            except AWAY as error:
                trouble = f" ({type(error).__name__}: {error})"
            await asyncio.sleep(0.02)
        raise AssertionError(f"not within {seconds:g} s: {what}{trouble}\n{await self.picture()}")

    async def picture(self) -> str:
        """States and weights, for messages."""
        try:
            cells = {c: (v["state"], v["cause"], v["weights"]) for c, v in (await self.cells()).items()}
            return f"controller: {cells}\nEnvoy: {await self.hosts()}"
        except AWAY as error:
            return f"no picture: {type(error).__name__}: {error}"

    async def no_nacks(self) -> None:
        """Envoy has refused nothing that this controller sent."""
        gateway = (await self.view())["gateways"][0]
        assert gateway["pushes"] > 0
        assert (gateway["nacks"], gateway["last_nack"]) == (0, "")


def ready_and_heard(view: Mapping[str, Any]) -> bool:
    """True for a cell that is READY by the word of an agent that still speaks."""
    heard = view["heartbeat_age_s"] < HEARD_S and not view["telemetry_lost"]
    return bool(view["state"] == "READY" and heard)


@asynccontextmanager
async def running_region(directory: Path, plan: Plan | None = None) -> AsyncIterator[Region]:
    """The programs, once all cells serve; afterwards all have ended as they should."""
    plan = plan or Plan()
    fleet = make_fleet(plan)
    async with Stack(directory) as stack, open_session() as session:
        region = Region(fleet, stack, session)
        await _bring_up(region, plan, directory)
        yield region
        report = await stack.stop()
    check_ends(report)


async def _bring_up(region: Region, plan: Plan, directory: Path) -> None:
    fleet, began = region.fleet, region.clock.now()
    told = controller_settings(fleet, directory) | dict(plan.settings)
    settings_files.write(directory / "controller.yaml", told)
    bootstrap = asyncio.create_task(programs.envoy(fleet, directory), name="bootstrap")
    try:
        await region.start(*(_cell(fleet, cell) for cell in fleet.cells))
        await region.start(*(_exporter(site, plan) for site in fleet.sites if plan.exporters))
        await region.start(_controller(fleet, plan, directory))
        await region.start(*(_agent(fleet, site, directory) for site in fleet.sites))
        await region.start(await bootstrap)
    finally:
        bootstrap.cancel()
    await region.stack.wait_ready()
    await region.serving()
    print(f"up after {region.clock.now() - began:.1f} s")


def make_fleet(plan: Plan) -> Fleet:
    """The sites and cells of the plan, on free ports."""
    ports = iter(free_ports(2 * len(plan.sites) + sum(map(len, plan.sites.values()))))
    sites = []
    for number, (name, ids) in enumerate(plan.sites.items(), 1):
        gpus = [
            f"GPU-{number:08x}-0000-4000-8000-{i:012x}" if plan.exporters else "" for i in range(len(ids))
        ]
        cells = tuple(Cell(cell, next(ports), gpu) for cell, gpu in zip(ids, gpus, strict=True))
        sites.append(Site(name, cells, next(ports), next(ports) if plan.exporters else 0))
    return Fleet("demo", tuple(sites), middle())


def controller_settings(fleet: Fleet, directory: Path) -> dict[str, Any]:
    """The controller's settings: quick to start, no ramp, old figures soon dropped,
    and patience with engines that share this machine.

    Weights follow the GPUs' memory, from the first beat on, and no fluctuation of a light load moves
    them: what a test sees move was moved by the fault that it made.
    """
    return settings_files.controller(fleet) | {
        "lifecycle": {"ramp_s": 0, "barrier_s": 1, "confirm_timeout_s": 1.0},
        "pressure": {"stale_after_s": 2.0, "hold_s": 1.0, "signals": {"vram_util": {"weight": 0.6}}},
        "projection": {"name": "headroom", "sharpness": 1.0, "deadband": 0.2},
        "state_dir": str(directory / "state"),
    }


def _cell(fleet: Fleet, cell: Cell) -> Spec:
    spec = programs.cell(fleet, cell)
    return replace(spec, command=(*spec.command, "--loading-seconds", "0"), grace_s=GRACE_S)


def _exporter(site: Site, plan: Plan) -> Spec:
    spec = programs.exporter(site)
    extra = ("--no-preallocate",) if site.name in plan.roomy else ()
    return replace(spec, command=(*spec.command, *extra), grace_s=GRACE_S)


def _agent(fleet: Fleet, site: Site, directory: Path) -> Spec:
    data = settings_files.agent(site, fleet) | {"engine": {"hung_after_s": HUNG_S}}
    path = settings_files.write(directory / f"agent-{site.name}.yaml", data)
    command = (console_script("headrace-agent"), "run", "--config", str(path))
    url = f"http://{HOST}:{site.agent_port}/healthz"
    return Spec(f"agent {site.name}", command, (site.agent_port,), url, grace_s=GRACE_S)


def _controller(fleet: Fleet, plan: Plan, directory: Path) -> Spec:
    extra = ("--baseline", plan.baseline) if plan.baseline else ()
    command = (console_script("headrace-controller"), "run", "--config", str(directory / "controller.yaml"))
    ports = (fleet.ports.telemetry, fleet.ports.xds, fleet.ports.api)
    url = f"{fleet.api_url}/healthz"
    return Spec("controller", (*command, *extra), ports, url, grace_s=GRACE_S)


def check_ends(report: StopReport) -> None:
    """Every program of ours that was not killed on purpose exited 0 on SIGTERM; nothing is left."""
    ours = [end for end in report.exits if not end.planned and not end.name.startswith("envoy")]
    bad = [end for end in ours if end.killed or end.code != 0 or end.sigterm_s is None]
    assert not bad, f"ended otherwise than by SIGTERM with status 0: {bad}"
    assert (report.processes, report.ports) == ((), ())
