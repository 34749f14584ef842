"""The Kubernetes manifests: what they name is there, what they carry is taken, and they ask for little."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_agent import settings as agent_settings
from headrace_controller import settings as controller_settings
from headrace_shared import config
from tests.support.monitoring import rules

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
FOLDERS = [FOLDER, FOLDER / "monitoring"]
NAME = "app.kubernetes.io/name"
WORKLOADS = [("DaemonSet", "headrace-agent"), ("Deployment", "headrace-controller")]


@cache
def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """All that the kustomizations name, by kind and name."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for folder in FOLDERS:
        whole = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
        for file in whole["resources"]:
            for each in yaml.safe_load_all((folder / file).read_text(encoding="utf-8")):
                key = each["kind"], each["metadata"]["name"]
                assert key not in found, key
                found[key] = each
    return found


def pod(kind: str, name: str) -> dict[str, Any]:
    """The pod's spec."""
    spec: dict[str, Any] = manifests()[kind, name]["spec"]["template"]["spec"]
    return spec


def container(kind: str, name: str) -> dict[str, Any]:
    (only,) = pod(kind, name)["containers"]
    assert isinstance(only, dict)
    return only


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {name: each for (of, name), each in manifests().items() if of == kind}


def agent_file() -> tuple[str, agent_settings.AgentSettings]:
    ((name, text),) = manifests()["ConfigMap", "headrace-agent"]["data"].items()
    return name, config.parse(text, agent_settings.AgentSettings)


def controller_file() -> controller_settings.ControllerSettings:
    ((name, text),) = manifests()["ConfigMap", "headrace-controller"]["data"].items()
    assert name == "controller.yaml"
    return config.parse(text, controller_settings.ControllerSettings)


def test_no_manifest_is_left_out() -> None:
    for folder in FOLDERS:
        whole = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
        files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert set(whole["resources"]) == files


def test_everything_is_in_the_one_namespace() -> None:
    (name,) = of_kind("Namespace")
    places = {key: each["metadata"].get("namespace") for key, each in manifests().items()}
    assert places.pop(("Namespace", name)) is None
    assert set(places.values()) == {name}


@pytest.mark.parametrize("which", WORKLOADS, ids=lambda which: which[1])
def test_a_program_runs_with_the_least_rights(which: tuple[str, str]) -> None:
    spec, own = pod(*which), container(*which)
    assert spec["automountServiceAccountToken"] is False
    assert spec.get("hostPID", False) is False
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    dockerfile = (ROOT / "deploy" / "docker" / f"{own['name']}.Dockerfile").read_text(encoding="utf-8")
    assert f"\nUSER {security['runAsUser']}:{security['runAsGroup']}\n" in dockerfile
    assert security["fsGroup"] == security["runAsGroup"]
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert own["resources"].keys() == {"requests", "limits"}
    assert "memory" in own["resources"]["limits"]
    assert spec["terminationGracePeriodSeconds"] > 2


@pytest.mark.parametrize("which", WORKLOADS, ids=lambda which: which[1])
def test_its_pieces_fit_together(which: tuple[str, str]) -> None:
    whole, spec, own = manifests()[which], pod(*which), container(*which)
    labels = whole["spec"]["template"]["metadata"]["labels"]
    assert whole["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels[NAME] == which[1]
    assert {mount["name"] for mount in own["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    for volume in spec["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in manifests()
        if "persistentVolumeClaim" in volume:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in manifests()
    names = {port["name"] for port in own["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert own[probe]["httpGet"]["port"] in names
        assert own[probe]["httpGet"]["path"] == ("/readyz" if probe == "readinessProbe" else "/healthz")


def mounts(which: tuple[str, str]) -> dict[str, str]:
    """Mount paths by volume."""
    return {each["name"]: each["mountPath"] for each in container(*which)["volumeMounts"]}


def test_each_gpu_node_runs_one_agent_with_its_own_file() -> None:
    which = WORKLOADS[0]
    spec, own = pod(*which), container(*which)
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert own["args"] == ["run", "--config", f"{mounts(which)['config']}/$(NODE_NAME).yaml"]
    assert own["env"][0]["name"] == "NODE_NAME"
    assert own["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    name, loaded = agent_file()
    assert name == f"{loaded.node}.yaml"
    assert loaded.warnings() == ()
    assert loaded.hardware.dcgm_url is not None
    (port,) = own["ports"]
    assert loaded.metrics_listen is not None
    assert (port["name"], port["containerPort"]) == ("metrics", loaded.metrics_listen.port)
    # Prometheus and the kubelet come by the node's address.
    assert not loaded.metrics_listen.is_loopback


def test_agents_reach_the_controllers_service() -> None:
    (controller,) = agent_file()[1].controllers
    service = manifests()["Service", "headrace-controller"]
    place = service["metadata"]
    assert controller.address.host == f"{place['name']}.{place['namespace']}.svc"
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    assert controller.address.port == ports["telemetry"]
    assert (controller.tls is not None) == (controller_file().listen.telemetry_tls is not None)


def test_the_service_leads_to_where_the_controller_listens() -> None:
    which = WORKLOADS[1]
    service, own = manifests()["Service", "headrace-controller"]["spec"], container(*which)
    labels = manifests()[which]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    open_ports = {port["name"]: port["containerPort"] for port in own["ports"]}
    listen = controller_file().listen
    assert open_ports == {
        "telemetry": listen.telemetry.port,
        "xds": listen.xds.port,
        "admin": listen.admin.port,
    }
    assert {port["targetPort"] for port in service["ports"]} == set(open_ports)
    assert not any(address.is_loopback for address in (listen.telemetry, listen.xds, listen.admin))
    # A controller that nobody reaches hears no agent, publishes nothing, and so never becomes ready.
    assert service["publishNotReadyAddresses"] is True


def test_the_controller_reads_its_file_and_keeps_its_state() -> None:
    which = WORKLOADS[1]
    deployment, loaded, places = manifests()[which]["spec"], controller_file(), mounts(which)
    assert container(*which)["args"] == ["run", "--config", f"{places['config']}/controller.yaml"]
    assert str(loaded.state_dir) == places["state"]
    # Two would write one state and contradict each other.
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    for tls in (loaded.listen.telemetry_tls, loaded.listen.xds_tls):
        assert tls is not None
        for file in (tls.ca, tls.cert, tls.key):
            assert file is not None
            assert str(file.parent) == places["tls"]


def test_prometheus_finds_both_under_the_names_that_rules_ask_for() -> None:
    monitors = of_kind("PodMonitor")
    assert set(monitors) == {name for _, name in WORKLOADS}
    for kind, name in WORKLOADS:
        spec = monitors[name]["spec"]
        assert spec["jobLabel"] == NAME
        assert spec["selector"]["matchLabels"] == {NAME: name}
        (endpoint,) = spec["podMetricsEndpoints"]
        assert endpoint["port"] in {port["name"] for port in container(kind, name)["ports"]}
        assert endpoint["path"] == "/metrics"
        (region,) = endpoint["relabelings"]
        assert region == {"targetLabel": "region", "replacement": controller_file().region}
    assert controller_file().admin.open_metrics, "Prometheus has no token"


def test_the_operators_rules_are_the_rules() -> None:
    groups = manifests()["PrometheusRule", "headrace"]["spec"]["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    assert sorted(map(str, found)) == sorted(map(str, rules()))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kustomize_takes_the_folder(folder: Path) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    made = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(done.stdout)}
    whole = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    files = [(folder / file).read_text(encoding="utf-8") for file in whole["resources"]]
    assert made == {(e["kind"], e["metadata"]["name"]) for text in files for e in yaml.safe_load_all(text)}
