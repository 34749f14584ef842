"""One arm's programs: brought up, struck, restarted, watched."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import aiohttp

from headrace_lab.demo import phases
from headrace_lab.demo.observe import TROUBLES, Host, Observer
from headrace_lab.live import peers, programs
from headrace_lab.live.layout import Layout
from headrace_lab.scenarios.settings import Arm, GatewayPlan
from headrace_lab.scenarios.timelines import StressPoint
from headrace_lab.stack.program import Program, Spec, StackError
from headrace_lab.stack.stack import Stack
from headrace_shared.clock import Clock

LOADING_S = 0.5
SERVE_S = 60.0
POLL_S = 0.1


@dataclass
class Session:
    """The programs of one arm by name: `cell ID`, `exporter NODE`, `agent NODE`, `controller`, `envoy`."""

    arm_name: str
    arm: Arm
    layout: Layout
    gateway: GatewayPlan
    stack: Stack
    http: aiohttp.ClientSession
    observer: Observer
    clock: Clock
    said: Callable[[str], None]
    _specs: dict[str, Spec] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _frozen: set[int] = field(default_factory=set)

    async def bring_up(self) -> None:
        """Start everything and wait until the whole fleet serves. Raises StackError."""
        layout, run_dir = self.layout, self.stack.run_dir
        fleet = layout.fleet
        cells = enumerate(fleet.cells)
        await self.start([programs.cell(layout, each, LOADING_S, number) for number, each in cells])
        if self.arm.peer:
            await self.stack.wait_ready()
            place = await peers.ensure(self.arm.peer, peers.default_root(), self.said, self.clock)
            await self.start([peers.router(self.arm.peer, place, fleet, self.arm.policy)])
            await self.stack.wait_ready()
            return
        await self.start([programs.exporter(layout, site) for site in fleet.sites])
        await self.start([programs.controller(layout, self.arm, self.gateway, run_dir)])
        await self.start([programs.agent(layout, site, run_dir) for site in fleet.sites])
        await self.start([programs.envoy(layout, run_dir)])
        await self.stack.wait_ready()
        await phases.serving(fleet, self.observer, self.clock, SERVE_S)

    async def start(self, specs: Iterable[Spec]) -> None:
        """Start programs that do not wait for each other."""
        wanted = list(specs)
        await self.stack.start(wanted)
        for spec in wanted:
            self._specs[spec.name] = spec
            self._names[spec.name] = spec.name

    def program(self, name: str) -> Program:
        """The program that runs, or ran last, under this name. Raises KeyError."""
        return self.stack.program(self._names[name])

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.program(name).kill(planned=True)

    async def restart(self, name: str, *, loading_s: float | None = None, wait: bool = True) -> None:
        """Start a program that has ended again, on its old ports; `loading_s` for a cell."""
        spec = self._specs[name]
        if loading_s is not None:
            each = self.layout.fleet.cell(name.removeprefix("cell "))
            number = self.layout.plans[each.id].number
            spec = programs.cell(self.layout, each, loading_s, number)
        again = replace(spec, name=f"{name} again {len(self.stack.programs)}")
        await self.stack.start([again])
        self._names[name] = again.name
        if wait:
            await self.stack.wait_ready([again.name])

    def freeze(self, names: Iterable[str]) -> None:
        """Stop programs from running at all, as a host that hangs or a path that passes nothing would.

        The kernel goes on to accept their connections and answers none.
        """
        for pid in [self.program(name).pid for name in names]:
            os.killpg(pid, signal.SIGSTOP)
            self._frozen.add(pid)

    def thaw(self) -> None:
        """Let all that is frozen run again."""
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGCONT)
        self._frozen.clear()

    async def set_fault(self, cell: str, fault: str) -> None:
        """Set a fault switch of a simulated cell. Raises StackError."""
        await self.post(f"{self.layout.fleet.cell(cell).url}/lab/faults", {"fault": fault}, 200)

    async def stress(self, cell: str, point: StressPoint) -> None:
        """Put a cell's GPU under a stress, in place of the one before. Raises StackError."""
        (site, each) = next(
            (site, each) for site in self.layout.fleet.sites for each in site.cells if each.id == cell
        )
        body = {"gpu": each.gpu, **point.model_dump(exclude={"at_s"})}
        await self.post(f"http://{site.host}:{site.exporter_port}/lab/stress", body, 200)

    async def post(self, url: str, body: dict[str, object], wanted: int) -> None:
        """Ask a program for something. Raises StackError where it refuses or does not answer."""
        try:
            async with self.http.post(url, json=body) as response:
                if response.status != wanted:
                    text = (await response.text())[:300]
                    raise StackError(f"{url} answered HTTP {response.status}: {text}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise StackError(f"{url} did not answer: {type(error).__name__}") from error

    async def hosts(self) -> dict[str, Host] | None:
        """Envoy's endpoints by cell id; None where it does not answer, or where a peer stands for it."""
        if self.arm.peer:
            return None
        names = self.layout.fleet.by_address
        try:
            found = await self.observer.hosts()
        except TROUBLES:
            return None
        return {names[address]: host for address, host in found.items() if address in names}

    async def whole(self, within_s: float) -> bool:
        """Wait until all cells serve again; False where they do not within the time."""
        deadline = self.clock.now() + within_s
        cells = [cell.id for cell in self.layout.fleet.cells]
        while self.clock.now() < deadline:
            if self.arm.peer:
                serves = all([await self._healthy(cell) for cell in cells])
            else:
                hosts = await self.hosts()
                serves = hosts is not None and all(c in hosts and hosts[c].healthy for c in cells)
            if serves:
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _healthy(self, cell: str) -> bool:
        """Whether a cell says itself that it serves: peers do not tell what they hold."""
        try:
            async with self.http.get(f"{self.layout.fleet.cell(cell).url}/health") as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
