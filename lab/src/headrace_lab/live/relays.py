"""A WAN before each site at the socket: one program of relays a site. It needs no root.

What passes between Envoy and a site's cells, and between its agents and the controller, is late as the
network says. No agent can measure that: kernels shake hands and answer pings at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path as FilePath

import yaml

from headrace_lab.demo.fleet import HOST
from headrace_lab.live.layout import Layout
from headrace_lab.live.timeline import Timeline
from headrace_lab.scenarios import Network, PathPlan
from headrace_lab.stack.program import ON_THE_WAY, Spec, StackError, console_script
from headrace_lab.stack.stack import Stack
from headrace_shared.clock import Clock

LISTEN_WAIT_S = 20.0
POLL_S = 0.1
SAID = (
    "paths were played at the socket, for real packets need root: agents cannot measure them, so network "
    "signals say nothing here, and there is no network_gain"
)


class RelayedWan:
    """The relays of one arm: one program a site."""

    def __init__(self, layout: Layout, stack: Stack, clock: Clock) -> None:
        self._layout = layout
        self._stack = stack
        self._clock = clock

    async def start(self, network: Network) -> None:
        """Start the relays with the paths of the network's start. Raises StackError."""
        for site in self._layout.uplinks:
            self._write(site, network.path(site, 0.0))
        await self._stack.start(
            Spec(
                f"relay {site}",
                (console_script("headrace-lab"), "relay", str(self._file(site))),
                behind=ON_THE_WAY,
            )
            for site in self._layout.uplinks
        )
        for site, port in self._layout.uplinks.items():
            await self._listens(site, port)

    def set_paths(self, network: Network, at_s: float) -> None:
        """Put the paths in force that the network has at a moment."""
        for site in self._layout.uplinks:
            self._write(site, network.path(site, at_s))
            os.kill(self._stack.program(f"relay {site}").pid, signal.SIGHUP)

    async def play(self, network: Network, line: Timeline) -> None:
        """Let the network's changes happen at their moments."""
        for at_s in sorted({change.at_s for change in network.changes}):
            await line.until(at_s)
            self.set_paths(network, at_s)

    async def _listens(self, site: str, port: int) -> None:
        """Wait for a site's last relay to listen."""
        deadline = self._clock.now() + LISTEN_WAIT_S
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError as error:
                if self._clock.now() > deadline:
                    raise StackError(
                        f"relay {site} does not listen on port {port} after {LISTEN_WAIT_S:g} s; "
                        f"see its log in {self._stack.run_dir}"
                    ) from error
                await asyncio.sleep(POLL_S)
            else:
                writer.transport.abort()
                return

    def _file(self, site: str) -> FilePath:
        return self._stack.run_dir / f"relay-{site}.yaml"

    def _write(self, site: str, path: PathPlan) -> None:
        layout = self._layout
        links = [
            {"listen": cell.address, "target": f"{cell.host}:{cell.port}"}
            for each in layout.fleet.sites
            if each.name == site
            for cell in each.cells
        ]
        near = f"{HOST}:{layout.fleet.ports.telemetry}"
        # The uplink comes last: once it listens, all do.
        links.append({"listen": f"{HOST}:{layout.uplinks[site]}", "target": near})
        data = {"links": links, "path": path.one_way.model_dump()}
        self._file(site).write_text(yaml.safe_dump(data), encoding="utf-8")
