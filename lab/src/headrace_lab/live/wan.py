"""A WAN before each site: namespaces, and one emulator a site that carries real packets. Needs root.

The lab itself, with the controller and Envoy, moves into the near namespace; each site has one of
its own at the far end of its path.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path as FilePath

import yaml

from headrace_lab.live.arms import GATEWAY_ADDRESS
from headrace_lab.live.layout import Place
from headrace_lab.live.timeline import Timeline
from headrace_lab.scenarios import Network, PathPlan
from headrace_lab.stack.program import ON_THE_WAY, Spec, console_script
from headrace_lab.stack.stack import Stack
from headrace_lab.wan.tun import DEVICE, WanError, ip, namespace
from headrace_shared.clock import Clock

CLONE_NEWNET = 0x40000000
NAMESPACES = FilePath("/run/netns")
OURS = re.compile(r"hrlab([0-9]+)(?:n|s[0-9]+)")
DEVICE_WAIT_S = 20.0
POLL_S = 0.1


def names(sites: Sequence[str], mark: int) -> tuple[str, dict[str, Place]]:
    """The near namespace and each site's place; `mark` keeps runs on one machine apart."""
    places = {
        site: Place(f"hrlab{mark}s{i}", f"10.77.{i}.2", f"10.77.{i}.1") for i, site in enumerate(sites, 1)
    }
    return f"hrlab{mark}n", places


def stale(found: Iterable[str], alive: Callable[[int], bool]) -> list[str]:
    """Of the namespaces found, those that runs left behind which were killed: their process is gone."""
    ours = ((name, OURS.fullmatch(name)) for name in found)
    return sorted(name for name, match in ours if match is not None and not alive(int(match[1])))


def _sweep() -> None:
    """Take away what killed runs left. Raises WanError."""
    found = os.listdir(NAMESPACES) if NAMESPACES.is_dir() else []
    for name in stale(found, lambda pid: FilePath(f"/proc/{pid}").exists()):
        ip("netns", "del", name)


def may_make_networks() -> bool:
    """Whether this process may make namespaces and TUN devices; else paths are played at the socket."""
    return os.geteuid() == 0 and os.access(DEVICE, os.R_OK | os.W_OK)


@contextmanager
def world(sites: Sequence[str]) -> Iterator[dict[str, Place]]:
    """Namespaces for the length of the context, with this process in the near one. Raises WanError."""
    if os.geteuid() != 0:
        raise WanError("a live WAN needs root, for namespaces and TUN devices; run the scenario in sim")
    near, places = names(sites, os.getpid())
    _sweep()
    with ExitStack() as stack:
        for name in (near, *(place.namespace for place in places.values())):
            stack.enter_context(namespace(name))
        stack.enter_context(_inside(near))
        ip("addr", "add", f"{GATEWAY_ADDRESS}/32", "dev", "lo")
        yield places


@contextmanager
def _inside(name: str) -> Iterator[None]:
    """This thread, and what it starts, in the namespace."""
    with open("/proc/self/ns/net", "rb") as before, (NAMESPACES / name).open("rb") as wanted:
        _enter(wanted.fileno(), name)
        try:
            yield
        finally:
            _enter(before.fileno(), "its own")


def _enter(descriptor: int, name: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise WanError(f"cannot enter the network namespace {name}: {os.strerror(ctypes.get_errno())}")


class Wan:
    """The emulators of one arm: one program a site."""

    def __init__(self, places: dict[str, Place], stack: Stack, clock: Clock) -> None:
        self._places = places
        self._stack = stack
        self._clock = clock
        self._near = names(list(places), os.getpid())[0]

    async def start(self, network: Network) -> None:
        """Start the emulators with the paths of the network's start. Raises StackError or WanError."""
        for site, place in self._places.items():
            self._write(site, place, network.path(site, 0.0))
        await self._stack.start(
            Spec(
                f"wan {site}",
                (console_script("headrace-lab"), "wan", str(self._file(site))),
                behind=ON_THE_WAY,
            )
            for site in self._places
        )
        for site in self._places:
            await self._device(site)

    def set_paths(self, network: Network, at_s: float) -> None:
        """Put the paths in force that the network has at a moment."""
        for site, place in self._places.items():
            self._write(site, place, network.path(site, at_s))
            os.kill(self._stack.program(f"wan {site}").pid, signal.SIGHUP)

    async def play(self, network: Network, line: Timeline) -> None:
        """Let the network's changes happen at their moments."""
        for at_s in sorted({change.at_s for change in network.changes}):
            await line.until(at_s)
            self.set_paths(network, at_s)

    async def _device(self, site: str) -> None:
        """Wait for a site's device and send all that leaves the site through it."""
        place, deadline = self._places[site], self._clock.now() + DEVICE_WAIT_S
        while True:
            try:
                ip("-n", place.namespace, "route", "replace", "default", "dev", self._name(site))
                return
            except WanError:
                if self._clock.now() > deadline:
                    raise
                await asyncio.sleep(POLL_S)

    def _name(self, site: str) -> str:
        return f"wan{list(self._places).index(site) + 1}"

    def _file(self, site: str) -> FilePath:
        return self._stack.run_dir / f"wan-{site}.yaml"

    def _write(self, site: str, place: Place, path: PathPlan) -> None:
        data = {
            "near": {"namespace": self._near, "addresses": [f"{place.near}/24"]},
            "far": {"namespace": place.namespace, "addresses": [f"{place.host}/24"]},
            "paths": {place.host: path.one_way.model_dump()},
            "device": self._name(site),
        }
        self._file(site).write_text(yaml.safe_dump(data), encoding="utf-8")
