"""What the documentation's commands run against: a small region, and a site that waits for its agent."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace_lab.demo import programs, settings_files
from headrace_lab.demo.fleet import HOST, Cell, Fleet, Site, middle
from headrace_lab.stack.ports import free_ports
from tests.e2e.whole_path.region import Plan, Region, running_region

ROOT = Path(__file__).parents[3]
LIMIT_S = 60.0
SITES = {"berlin": ("berlin-1", "berlin-2"), "paris": ("paris-1",)}
WAITS = "rome"
"""The site whose agent the documentation's reader starts."""
GOES_ON = {
    r"headrace-agent run": "component",
    r"headrace-controller run": "component",
    r"envoy -c": "starting main dispatch loop",
    r"curl -N": "retry:",
    r"headrace (top|tail|events --follow)": "",
}
"""Commands that go on until Ctrl-C, and what they say once they are under way; "" = anything."""
STRAY = {-2: r"curl -N", 141: r".*\| head"}
"""Exit codes besides 0 that some commands end with when their reader has had enough."""


@dataclass(frozen=True)
class Grid:
    """The region and where its programs are; `place` is a reader's folder, `admin_port` a free port."""

    region: Region
    fleet: Fleet
    waits: Site
    place: Path
    admin_port: int
    _ran: dict[str, tuple[int, str]] = field(default_factory=dict)

    def adapted(self, command: str) -> str:
        """The command with this region's addresses, and values in the place of its placeholders."""
        for pattern, value in (*self._places(), *PLACEHOLDERS):
            command = re.sub(pattern, value.replace("\\", "\\\\"), command)
        return command

    def _places(self) -> Sequence[tuple[str, str]]:
        cell, fleet = self.waits.cells[0], self.fleet
        state = str(self.place.parent / "state")
        exporter = f"{HOST}:{self.waits.exporter_port}"
        return (
            (r"^make ", f"make -n -C {ROOT} "),
            (r"(127\.0\.0\.1|localhost):8000\b", cell.address),
            (r"(127\.0\.0\.1|localhost):9400\b", exporter),
            (r"(127\.0\.0\.1|GATEWAY|ENVOY):9901\b", f"{HOST}:{fleet.ports.gateway_admin}"),
            (r"127\.0\.0\.1:18002\b", f"{HOST}:{fleet.ports.api}"),
            (r"(?<=http://)CELL\b", cell.address),
            (r"(?<=gateway check )URL\b", fleet.gateway_admin_url),
            (r"(?<=read engine )(URL|PAGE)\b", f"{cell.url}/metrics"),
            (r"(?<=--url )URL\b", fleet.api_url),
            (r"(?<=--xds-address )HOST:18001\b", f"{HOST}:{fleet.ports.xds}"),
            (r"(?<=replay )(STATE_DIR|FILE|/var/lib/headrace)", state),
            (r"/opt/headrace/bin/", ""),
            (r"/etc/headrace/", ""),
            (r"/etc/prometheus\b", f"{self.place}/prometheus"),
            (r"^envoy -c", "envoy --disable-hot-restart -c"),
        )

    async def run(self, command: str) -> tuple[int, str]:
        """The exit code of a command of the documentation, and what it said. What other pages show in other
        words is run once."""
        typed = self.adapted(command)
        if typed not in self._ran:
            if " discover " in command:
                (self.place / "agent.yaml").unlink(missing_ok=True)
            sign = next((sign for pattern, sign in GOES_ON.items() if re.match(pattern, command)), None)
            self._ran[typed] = await self._run(typed, sign)
            self._filled_in(command)
        code, said = self._ran[typed]
        stray = code in STRAY and re.match(STRAY[code], command)
        return 0 if stray else code, said

    async def _run(self, typed: str, sign: str | None) -> tuple[int, str]:
        """Run it in the reader's folder; one that goes on is ended by Ctrl-C once it has said its `sign`."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-o", "pipefail", "-c", typed if sign is None else f"exec {typed}"),
            cwd=self.place,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment(),
        )
        assert process.stdout is not None
        said = b""
        try:
            async with asyncio.timeout(LIMIT_S):
                while sign is not None and (line := await process.stdout.readline()):
                    said += line
                    if sign in line.decode():
                        process.send_signal(signal.SIGINT)
                        break
                said += await process.stdout.read()
                return await process.wait(), (said).decode(errors="replace")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        editor = f"cp {self.place.parent}/agent.yaml"
        return kept | {
            "PATH": path,
            "HEADRACE_URL": self.fleet.api_url,
            "HEADRACE_TOKEN": "",
            "EDITOR": editor,
        }

    def _filled_in(self, command: str) -> None:
        """What a person does between two commands: fill in a proposed config; choose a port that is free."""
        proposed, bootstrap = self.place / "agent.yaml", self.place / "envoy.yaml"
        if " discover " in command:
            assert "# What `headrace-agent discover` found" in proposed.read_text(encoding="utf-8")
            shutil.copyfile(self.place.parent / "agent.yaml", proposed)
        if bootstrap.exists():
            text = bootstrap.read_text(encoding="utf-8")
            bootstrap.write_text(re.sub(r"\b9901\b", str(self.admin_port), text), encoding="utf-8")


PLACEHOLDERS = (
    (r"^headrace-agent check$", "headrace-agent check --config agent.yaml"),
    (r"^headrace-agent check\b", "headrace-agent check --wait 1"),
    (r"config check FILE", "config check controller.yaml"),
    (r"(?<=--settings )FILE\b", "controller.yaml"),
    (r"(?<=headrace-agent config check )controller\.yaml", "agent.yaml"),
    (r"(?<= )(CELL|X)\b", "berlin-1"),
    (r"(?<= )SITE\b", "paris"),
    (r"(?<= )MODEL\b", "demo"),
    (r"(?<= )COMMAND\b", "drain"),
    (r"(?<==)(FILE|…)", "x"),
    (r"(?<=--cause )(\.\.\.|…)", "repair"),
)


@asynccontextmanager
async def running_grid(directory: Path) -> AsyncIterator[Grid]:
    """The grid, once all its cells serve; the waiting site has engines, an exporter and no agent."""
    plan = Plan(sites=SITES, settings={"picker": {"enabled": True}})
    async with running_region(directory, plan) as region:
        waits = await _waiting_site(region)
        place = directory / "clone"
        admin_port = _files(region.fleet, waits, directory, place)
        yield Grid(region, region.fleet, waits, place, admin_port)


async def _waiting_site(region: Region) -> Site:
    cell_port, agent_port, exporter_port = free_ports(3)
    gpu = "GPU-0000000a-0000-4000-8000-000000000001"
    site = Site(WAITS, (Cell(f"{WAITS}-1", cell_port, gpu),), agent_port, exporter_port)
    cell = programs.cell(region.fleet, site.cells[0])
    await region.start(replace(cell, command=(*cell.command, "--loading-seconds", "0")))
    await region.start(programs.exporter(site))
    await region.stack.wait_ready()
    return site


def _files(fleet: Fleet, waits: Site, directory: Path, place: Path) -> int:
    """What a reader has at hand: the clone's files, settings, and two copies of an engine's page; a port
    for another Envoy."""
    (place / "prometheus").mkdir(parents=True)
    (place / "deploy").symlink_to(ROOT / "deploy")
    for at in (directory, place):
        settings_files.write(at / "agent.yaml", settings_files.agent(waits, fleet))
    own = replace(fleet, ports=middle())
    settings_files.write(place / "controller.yaml", settings_files.controller(own))
    for name, page in (("before.prom", "vllm_0.32.0_busy.prom"), ("after.prom", "vllm_0.32.0_after.prom")):
        shutil.copyfile(ROOT / "tests" / "data" / "engine_pages" / page, place / name)
    return own.ports.gateway_admin
