"""Other projects' routers, from their wheels, each in an environment of its own."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from headrace_lab.demo.fleet import HOST, Fleet
from headrace_lab.real.environment import Said, claim, locked
from headrace_lab.stack.once import run_once
from headrace_lab.stack.ports import free_ports
from headrace_lab.stack.program import ON_THE_WAY, Spec, StackError
from headrace_shared.clock import Clock

MARK = "headrace-peers"
STAMP = "built.json"
INSTALL_S = 900.0
STEP_S = 300.0
GRACE_S = 5.0


class PeerMissingError(Exception):
    """A peer's wheel cannot be had or used here; its arm is left out."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One project's router: its wheel, and the program in it with the options that it needs.

    It runs as it comes: its own health checks and retries, and its default policy where an arm names none.
    """

    package: str
    version: str
    program: tuple[str, ...]

    @property
    def recipe(self) -> dict[str, str]:
        """What a finished environment was built from."""
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return {"package": self.package, "version": self.version, "python": python}


PEERS = {
    "vllm-router": Peer("vllm-router", "0.1.17", ("bin/vllm-router",)),
    "sglang-router": Peer("sglang-router", "0.3.2", ("bin/python", "-m", "sglang_router.launch_router")),
}


def default_root() -> Path:
    """The user's cache directory, by the XDG convention."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "peers"


def is_built(place: Path, peer: Peer) -> bool:
    """True if an environment for this peer was finished here."""
    try:
        recipe = json.loads((place / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(recipe == peer.recipe) and (place / peer.program[0]).exists()


async def ensure(name: str, root: Path, said: Said, clock: Clock) -> Path:
    """The peer's environment under `root`, built first if need be. Raises PeerMissingError."""
    peer = PEERS[name]
    place, log = root / name, root / f"{name}.log"
    try:
        claim(root, MARK)
        async with locked(root / "lock", said, clock):
            if not is_built(place, peer):
                await _build(peer, place, log, said, clock)
    except StackError as error:
        raise PeerMissingError(str(error)) from error
    return place


async def _build(peer: Peer, place: Path, log: Path, said: Said, clock: Clock) -> None:
    wheel = f"{peer.package}=={peer.version}"
    make = (sys.executable, "-m", "venv", "--clear", str(place))
    await run_once("making a virtual environment", make, log, clock, within_s=STEP_S, said=said)
    pip = (str(place / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--no-input")
    install = (*pip, "install", "--only-binary", ":all:", wheel)
    await run_once(f"installing {wheel}", install, log, clock, within_s=INSTALL_S, said=said)
    (place / STAMP).write_text(json.dumps(peer.recipe), encoding="utf-8")


def router(name: str, place: Path, fleet: Fleet, policy: str = "") -> Spec:
    """The router in the gateway's place, with a policy of its own or its default. Raises NoFreePortError."""
    (metrics,) = free_ports(1)
    program, *options = PEERS[name].program
    workers = (f"http://{cell.address}" for cell in fleet.cells)
    command = (
        *(str(place / program), *options, "--worker-urls", *workers),
        *("--host", HOST, "--port", str(fleet.ports.gateway)),
        *("--prometheus-host", HOST, "--prometheus-port", str(metrics)),
        *(("--policy", policy) if policy else ()),
    )
    ports = (fleet.ports.gateway, metrics)
    return Spec(
        name, command, ports, f"{fleet.gateway_url}/health", ours=False, grace_s=GRACE_S, behind=ON_THE_WAY
    )
