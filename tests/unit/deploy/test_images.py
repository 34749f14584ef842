"""The Dockerfiles and the Kubernetes manifest: they name what exists and ask for no more than they need."""

from __future__ import annotations

import re
import shlex
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

from headrace_agent import settings as agent_settings
from headrace_shared import config

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


def agent_image() -> dict[str, str]:
    return dict(instructions(DOCKER / "agent.Dockerfile"))


def test_the_agents_image_holds_the_agent_alone() -> None:
    text = (DOCKER / "agent.Dockerfile").read_text(encoding="utf-8")
    sources = {rest.split()[0] for name, rest in instructions(DOCKER / "agent.Dockerfile") if name == "COPY"}
    assert sources == {"constraints.txt", "shared", "agent", "--from=build"}
    (program,) = yaml.safe_load(agent_image()["ENTRYPOINT"])
    assert program in scripts("agent")
    assert yaml.safe_load(agent_image()["CMD"]) == ["run", "--config", "/etc/headrace/agent.yaml"]
    for right in ("--network host", "NET_RAW", "--pid host", "--runtime nvidia", "--signal HUP"):
        assert right in text, f"{right} is not explained"


def health_check() -> list[str]:
    """The command, run by this interpreter."""
    said = agent_image()["HEALTHCHECK"]
    command: list[str] = yaml.safe_load(said[said.index("CMD") + 3 :])
    assert command[0] == "python"
    return [sys.executable, *command[1:]]


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server that gives every path this status; its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
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


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_agents_image_asks_its_health_as_the_agent_tells_it(status: int, code: int) -> None:
    with answering(status) as address:
        done = subprocess.run(
            health_check(), env={"HEADRACE_HEALTH": address}, timeout=30, check=False, capture_output=True
        )
    assert done.returncode == code, done.stderr


def test_an_agent_that_does_not_answer_is_unhealthy() -> None:
    done = subprocess.run(
        health_check(), env={"HEADRACE_HEALTH": "127.0.0.1:1"}, timeout=30, check=False, capture_output=True
    )
    assert done.returncode == 1
    assert "HEADRACE_HEALTH" in agent_image()["ENV"]


def test_the_compose_programs_exist() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    programs = {name: service["command"][0] for name, service in services.items()}
    assert programs.pop("envoy") == "sh"
    assert set(programs.values()) <= scripts("agent", "controller", "lab")
    assert (ROOT / services["controller"]["build"]["dockerfile"]).exists()


def manifest() -> dict[str, dict[str, Any]]:
    """By kind."""
    text = (ROOT / "deploy" / "kubernetes" / "agent.yaml").read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def container() -> dict[str, Any]:
    (only,) = manifest()["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def test_the_manifest_runs_one_agent_on_each_gpu_node_with_the_least_rights() -> None:
    spec = manifest()["DaemonSet"]["spec"]
    pod, own = spec["template"]["spec"], container()
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert pod["hostPID"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(agent_image()["USER"].split(":")[0])
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert own["resources"].keys() == {"requests", "limits"}
    assert pod["terminationGracePeriodSeconds"] > 2


def test_the_manifests_pieces_fit_together() -> None:
    pod, own = manifest()["DaemonSet"]["spec"]["template"]["spec"], container()
    assert {mount["name"] for mount in own["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    (volume,) = [each for each in pod["volumes"] if each["name"] == "config"]
    assert volume["configMap"]["name"] == manifest()["ConfigMap"]["metadata"]["name"]
    namespaces = {kind: each["metadata"].get("namespace") for kind, each in manifest().items()}
    name = manifest()["Namespace"]["metadata"]["name"]
    assert namespaces == {"Namespace": None, "ConfigMap": name, "DaemonSet": name}
    mounted = next(each["mountPath"] for each in own["volumeMounts"] if each["name"] == "config")
    assert shlex.join(own["args"]) == shlex.join(["run", "--config", f"{mounted}/$(NODE_NAME).yaml"])
    assert own["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_the_manifests_file_is_a_good_one_and_its_probes_ask_where_it_listens() -> None:
    ((name, text),) = manifest()["ConfigMap"]["data"].items()
    loaded = config.parse(text, agent_settings.AgentSettings)
    assert name == f"{loaded.node}.yaml"
    assert loaded.warnings() == ()
    assert loaded.hardware.dcgm_url is not None
    own, listen = container(), loaded.metrics_listen
    assert listen is not None
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for probe, path in paths.items():
        assert own[probe]["httpGet"] == {"host": listen.host, "port": listen.port, "path": path}
