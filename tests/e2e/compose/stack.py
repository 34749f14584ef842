"""docker-compose.yml without containers: each service's own command in a network namespace of its own.

What an image would bring is this environment's: the programs, Envoy from its wheel. Paths inside of
containers become paths of the repository, or of a directory of the test. Needs root and `ip`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headrace_lab.wan.tun import namespace

ROOT = Path(__file__).resolve().parents[3]
WHOLE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = WHOLE["services"]
STATE = "/var/lib/headrace"
SETTINGS = "/etc/headrace/controller.yaml"
SCRAPES = "/etc/prometheus/prometheus.yml"
PATIENCE_S = 60.0
GRACE_S = 20.0


def call(words: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and take what it says."""
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )


def ip(*words: str) -> None:
    """Run `ip`; it must work."""
    done = call(["ip", *words])
    assert done.returncode == 0, (words, done.stderr)


def dockerfile(service: dict[str, Any]) -> dict[str, str]:
    """The last instruction of each kind in the file that builds the service."""
    text = (ROOT / service["build"]["dockerfile"]).read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return dict(line.split(None, 1) for line in lines if re.match(r"[A-Z]+ ", line))


@dataclass
class Service:
    """One service that runs."""

    name: str
    space: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class Compose:
    """The services by name. `paths`: what a path inside of containers is here."""

    folder: Path
    paths: dict[str, str]
    services: dict[str, Service] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """The text with paths of this machine."""
        for inside, outside in self.paths.items():
            text = text.replace(inside, outside)
        return text.replace("$$", "$")

    def run(self, name: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command beside a service, as `docker compose exec` does."""
        command = ["ip", "netns", "exec", self.services[name].space, *words]
        return call(command, _environment() | environment)

    def check(self, name: str) -> bool:
        """The service's health check, as its image or the file has it."""
        service = SERVICES[name]
        given = service.get("healthcheck", {})
        if given.get("test"):
            kind, *words = given["test"]
            assert kind == "CMD"
            return self.run(name, *words).returncode == 0
        built = dockerfile(service)
        words = yaml.safe_load(built["HEALTHCHECK"].split("CMD", 1)[1])
        place = re.search(r"HEADRACE_HEALTH=(\S+)", built["ENV"])
        assert place is not None
        asked = service.get("environment", {}).get("HEADRACE_HEALTH", place[1])
        return self.run(name, *words, HEADRACE_HEALTH=asked).returncode == 0

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it. Raises AssertionError with what the services said last."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.2)
        said = {name: each.log.read_text(encoding="utf-8")[-800:] for name, each in self.services.items()}
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}\n{said}")


def command_of(compose: Compose, name: str) -> list[str]:
    """What the container would run, by this environment's programs."""
    service = SERVICES[name]
    first = service.get("entrypoint") or (
        yaml.safe_load(dockerfile(service)["ENTRYPOINT"]) if "build" in service else []
    )
    rest = service.get("command") or yaml.safe_load(dockerfile(service)["CMD"])
    words = [*first, *rest]
    if name == "prometheus":
        words = ["prometheus", *words, "--log.level=warn"]
    if name == "envoy":
        # Its base id must not be that of another Envoy on this machine.
        words.append("--disable-hot-restart")
    if name.startswith("agent-"):
        words[-1] = str(ROOT / "deploy" / "compose" / f"{name}.yaml")
    return [compose.here(str(word)) for word in words]


def _environment() -> dict[str, str]:
    programs = str(Path(sys.executable).parent)
    return {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": "/nonexistent", "PYTHONUNBUFFERED": "1"}


@contextmanager
def running(folder: Path, names: list[str]) -> Iterator[Compose]:
    """The services, in that order, on one bridge."""
    subnet = WHOLE["networks"]["lab"]["ipam"]["config"][0]["subnet"]
    state = folder / "state"
    state.mkdir()
    rules = str(ROOT / "deploy" / "prometheus" / "rules")
    compose = Compose(
        folder,
        {
            SETTINGS: _moved(folder, "controller.yaml", STATE, str(state)),
            STATE: str(state),
            "/etc/envoy/envoy.yaml": str(ROOT / "deploy" / "compose" / "envoy.yaml"),
            SCRAPES: _moved(folder, "prometheus.yml", "/etc/prometheus/rules", rules),
            "tsdb.path=/prometheus": f"tsdb.path={folder / 'tsdb'}",
        },
    )
    hub = f"hr{os.getpid()}hub"
    with ExitStack() as stack:
        stack.enter_context(namespace(hub))
        ip("-n", hub, "link", "add", "br0", "type", "bridge")
        ip("-n", hub, "link", "set", "br0", "up")
        for number, name in enumerate(names):
            space = f"hr{os.getpid()}s{number}"
            stack.enter_context(namespace(space))
            _plug(hub, space, number, name, subnet)
            stack.enter_context(_started(compose, name, space))
        yield compose


def _moved(folder: Path, name: str, inside: str, outside: str) -> str:
    """A copy of a mounted file, with a path in it that is right here."""
    text = (ROOT / "deploy" / "compose" / name).read_text(encoding="utf-8")
    assert inside in text
    copy = folder / name
    copy.write_text(text.replace(inside, outside), encoding="utf-8")
    return str(copy)


def _plug(hub: str, space: str, number: int, name: str, subnet: str) -> None:
    """A cable from the service's namespace to the bridge, with its address."""
    networks = SERVICES[name]["networks"]
    own = networks["lab"].get("ipv4_address") if isinstance(networks, dict) else None
    address = own or f"{subnet.rsplit('.', 1)[0]}.{200 + number}"
    ip("-n", hub, "link", "add", f"p{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
    ip("-n", hub, "link", "set", f"p{number}", "master", "br0", "up")
    ip("-n", space, "addr", "add", f"{address}/{subnet.split('/')[1]}", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", space, "link", "set", device, "up")


@contextmanager
def _started(compose: Compose, name: str, space: str) -> Iterator[None]:
    log = compose.folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["ip", "netns", "exec", space, *command_of(compose, name)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=compose.folder,
            env=_environment(),
            start_new_session=True,
        )
        compose.services[name] = Service(name, space, process, log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(GRACE_S)
