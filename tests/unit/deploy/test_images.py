"""The Dockerfiles: they name what exists and ask for no more than they need."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "deploy" / "docker"
IMAGES = sorted(DOCKER.glob("*Dockerfile"))


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, the rest), with continued lines joined and comments left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    parts = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [(name.upper(), rest) for name, rest in parts]


def scripts(*packages: str) -> set[str]:
    found: set[str] = set()
    for package in packages:
        project = tomllib.loads((ROOT / package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        found |= set(project.get("scripts", {}))
    return found


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_an_image_copies_what_exists_installs_pinned_and_is_not_root(path: Path) -> None:
    steps = instructions(path)
    copied = [rest.split() for name, rest in steps if name == "COPY" and "--from" not in rest]
    assert copied
    assert all((ROOT / source).exists() for *sources, _ in copied for source in sources)
    installs = [rest for name, rest in steps if name == "RUN" and "pip install" in rest]
    assert installs
    assert all("PIP_CONSTRAINT=/src/constraints.txt" in rest for rest in installs)
    assert copied[0][0] == "constraints.txt"
    bases = [rest.split()[0] for name, rest in steps if name == "FROM"]
    assert len(bases) == 2, "what builds it does not ship with it"
    (user,) = [rest for name, rest in steps if name == "USER"]
    assert user.split(":")[0] not in ("root", "0")


def image(name: str) -> dict[str, str]:
    """The last instruction of each kind."""
    return dict(instructions(DOCKER / f"{name}.Dockerfile"))


PROGRAMS = {"agent": ("agent",), "controller": ("controller",), "lab": ("agent", "controller", "lab")}
"""What each image holds, beside shared."""


def test_there_is_an_image_of_each_program() -> None:
    assert {path.name.removesuffix(".Dockerfile") for path in IMAGES} == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_image_holds_its_program_alone_and_no_secret(name: str) -> None:
    steps = instructions(DOCKER / f"{name}.Dockerfile")
    sources = {rest.split()[0] for kind, rest in steps if kind == "COPY"}
    assert sources == {"constraints.txt", "shared", "--from=build", *PROGRAMS[name]}
    (program,) = yaml.safe_load(image(name)["ENTRYPOINT"])
    assert program in scripts(name)
    assert image(name)["STOPSIGNAL"] == "SIGTERM"
    given = " ".join(rest for kind, rest in steps if kind in ("ENV", "ARG"))
    assert not re.search(r"(?i)token|secret|passw|api_?key", given)


@pytest.mark.parametrize("name", ["agent", "controller"])
def test_a_service_reads_the_file_that_is_mounted(name: str) -> None:
    assert yaml.safe_load(image(name)["CMD"]) == ["run", "--config", f"/etc/headrace/{name}.yaml"]


def test_the_agents_image_explains_its_rights() -> None:
    text = (DOCKER / "agent.Dockerfile").read_text(encoding="utf-8")
    for right in ("--network host", "NET_RAW", "--pid host", "--runtime nvidia", "--signal HUP"):
        assert right in text, f"{right} is not explained"


def health_check(name: str) -> list[str]:
    """The command, run by this interpreter."""
    said = image(name)["HEALTHCHECK"]
    command: list[str] = yaml.safe_load(said[said.index("CMD") + 3 :])
    assert command[0] == "python"
    return [sys.executable, *command[1:]]


@contextmanager
def answering(path: str, status: int) -> Iterator[str]:
    """A server that gives this path this status, others 404; its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == path else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever, name="health answers")
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(name: str, address: str) -> int:
    """What the health check of the image says of a program at this address."""
    done = subprocess.run(
        health_check(name), env={"HEADRACE_HEALTH": address}, timeout=30, check=False, capture_output=True
    )
    return done.returncode


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_an_image_asks_its_health_as_its_program_tells_it(name: str, status: int, code: int) -> None:
    with answering("/health" if name == "lab" else "/healthz", status) as address:
        assert asked(name, address) == code


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_does_not_answer_is_unhealthy(name: str) -> None:
    assert asked(name, "127.0.0.1:1") == 1
    assert "HEADRACE_HEALTH" in image(name)["ENV"]
