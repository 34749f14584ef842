"""docker-compose.yml, the files that it mounts, the images and the programs agree with each other."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from headrace_agent import settings as agent_settings
from headrace_controller import settings as controller_settings
from headrace_controller.cli import app as controller_app
from headrace_controller.xds.bootstrap import render
from headrace_lab.cli import app as lab_app
from headrace_shared import config
from headrace_shared.net import HostPort
from tests.support.monitoring import DASHBOARDS, RULES, dashboards

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "deploy" / "compose"
FILE = ROOT / "docker-compose.yml"
WHOLE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = WHOLE["services"]
SITES = ("a", "b", "c")
APPS = {"headrace-controller": controller_app, "headrace-lab": lab_app}


def address(service: str) -> str:
    return str(SERVICES[service]["networks"]["lab"]["ipv4_address"])


def dockerfile(service: dict[str, Any]) -> dict[str, str]:
    """The last instruction of each kind in the file that builds the service."""
    text = (ROOT / service["build"]["dockerfile"]).read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return dict(line.split(None, 1) for line in lines if re.match(r"[A-Z]+ ", line))


def mounted(service: str) -> dict[str, Path]:
    """Where files of the repository appear, and what they are."""
    parts = [each.split(":") for each in SERVICES[service]["volumes"] if each.startswith("./")]
    return {part[1]: ROOT / part[0] for part in parts}


def accepts(program: str, words: list[str]) -> None:
    """Raise where the program's command line is not understood. Nothing is run."""
    group: Any = typer.main.get_command(APPS[program])
    name, command, rest = group.resolve_command(group.make_context(program, words), words)
    assert command is not None, words
    command.make_context(name, list(rest))


def test_what_is_mounted_exists_and_cannot_be_written() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source, target, *mode = volume.split(":")
            assert target.startswith("/")
            if source.startswith("./"):
                assert (ROOT / source).exists(), f"{name}: {source}"
                assert mode == ["ro"]
            else:
                assert source in WHOLE["volumes"]


def test_ports_are_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_secret_stands_in_the_file() -> None:
    given = [each for service in SERVICES.values() for each in service.get("environment", {})]
    assert not [name for name in given if re.search(r"(?i)token|secret|passw|key", name)]
    assert not [path for path in COMPOSE.iterdir() if "token" in path.name or path.suffix in (".key", ".pem")]


def test_our_programs_have_no_rights_and_say_how_they_are() -> None:
    ours = {name: each for name, each in SERVICES.items() if "build" in each}
    assert len(ours) == 11
    for name, service in ours.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"] is True
        assert "HEALTHCHECK" in dockerfile(service)
        (program,) = yaml.safe_load(dockerfile(service)["ENTRYPOINT"])
        assert service["image"] == f"{program}:dev"
    for name in SERVICES.keys() - ours.keys():
        assert SERVICES[name]["healthcheck"]["test"], name
        assert re.search(r":v?\d+\.\d+", SERVICES[name]["image"]), "a version, not what is newest"


def test_the_labs_command_lines_are_understood() -> None:
    ran = [each for each in SERVICES.values() if each.get("image") == "headrace-lab:dev"]
    assert len(ran) == 7
    for service in ran:
        accepts("headrace-lab", service["command"])
        assert service["profiles"] == ["demo"]
    with pytest.raises(Exception, match="No such option"):
        accepts("headrace-lab", ["cell", "--prot", "8000"])


def test_the_controllers_script_runs_its_program_on_the_mounted_file() -> None:
    service = SERVICES["controller"]
    assert service["entrypoint"] == ["sh", "-euc"]
    (script,) = service["command"]
    last = script.strip().splitlines()[-1]
    words = shlex.split(last)
    assert words[0] == "exec"
    accepts(words[1], words[2:])
    (path,) = mounted("controller")
    assert words[-1] == path
    loaded = controller_settings.load(mounted("controller")[path])
    assert f"state:{loaded.state_dir}" in service["volumes"]
    (token,) = loaded.admin.tokens
    assert f"token={token.file}\n" in script
    assert loaded.admin.open_metrics, "Prometheus has no token"
    port = service["ports"][0].rsplit(":", 1)[1]
    assert port == str(loaded.listen.admin.port)
    assert dockerfile(service)["ENV"].endswith(f"HEADRACE_HEALTH=127.0.0.1:{port}")


def test_the_controller_knows_the_envoy_and_the_envoy_the_controller() -> None:
    loaded = controller_settings.load(COMPOSE / "controller.yaml")
    (gateway,) = loaded.gateways
    assert gateway.host == address("envoy")
    (port,) = SERVICES["envoy"]["ports"]
    assert gateway.listen is not None
    assert int(port.rsplit(":", 1)[1]) == gateway.listen.port == gateway.port
    written = yaml.safe_load((COMPOSE / "envoy.yaml").read_text(encoding="utf-8"))
    xds = HostPort(address("controller"), loaded.listen.xds.port)
    assert written == yaml.safe_load(render(gateway.id, xds, 9901))
    (config_path,) = mounted("envoy")
    assert config_path in SERVICES["envoy"]["command"]


@pytest.mark.parametrize("site", SITES)
def test_each_agent_speaks_for_its_cell(site: str) -> None:
    service = SERVICES[f"agent-{site}"]
    (path,) = mounted(f"agent-{site}")
    assert path == yaml.safe_load(dockerfile(service)["CMD"])[-1]
    loaded = agent_settings.load(mounted(f"agent-{site}")[path])
    controller = controller_settings.load(COMPOSE / "controller.yaml")
    assert loaded.warnings() == ()
    assert str(loaded.controllers[0].address) == f"{address('controller')}:{controller.listen.telemetry.port}"
    (cell,) = loaded.cells
    assert cell.address.host == address(f"cell-{site}")
    words = SERVICES[f"cell-{site}"]["command"]
    assert words[words.index("--cell-id") + 1] == cell.id
    assert int(words[words.index("--port") + 1]) == cell.address.port
    exporter = SERVICES[f"gpu-{site}"]["command"]
    assert (
        loaded.hardware.dcgm_url
        == f"http://{address(f'gpu-{site}')}:{exporter[exporter.index('--port') + 1]}/metrics"
    )
    assert exporter[exporter.index("--gpu") + 1] == f"{cell.gpus[0]}=http://{cell.address}"
    assert SERVICES[f"gpu-{site}"]["environment"]["HEADRACE_HEALTH"].endswith(":9400")


def test_prometheus_finds_what_there_is() -> None:
    loaded = yaml.safe_load((COMPOSE / "prometheus.yml").read_text(encoding="utf-8"))
    example = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    controller, agent = loaded["scrape_configs"]
    assert [each["job_name"] for each in loaded["scrape_configs"]] == [
        each["job_name"] for each in example["scrape_configs"]
    ]
    settings = controller_settings.load(COMPOSE / "controller.yaml")
    (target,) = controller["static_configs"][0]["targets"]
    assert target == f"{address('controller')}:{settings.listen.admin.port}"
    (names,) = agent["dns_sd_configs"]
    aliases = {SERVICES[f"agent-{site}"]["networks"]["lab"]["aliases"][0] for site in SITES}
    assert set(names["names"]) == aliases
    ports = {agent_settings.load(COMPOSE / f"agent-{site}.yaml").metrics_listen for site in SITES}
    assert {each.port for each in ports if each} == {names["port"]}
    (pattern,) = loaded["rule_files"]
    assert mounted("prometheus")[str(Path(pattern).parent)] == RULES[0].parent


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    places = mounted("grafana")
    provisioning = places["/etc/grafana/provisioning"]
    read = {
        kind: yaml.safe_load((provisioning / kind / "headrace.yaml").read_text(encoding="utf-8"))
        for kind in ("datasources", "dashboards")
    }
    (source,) = read["datasources"]["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["type"] == "prometheus"
    (provider,) = read["dashboards"]["providers"]
    assert places[provider["options"]["path"]] == DASHBOARDS[0].parent
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).stem in dashboards()
    interval = yaml.safe_load((COMPOSE / "prometheus.yml").read_text(encoding="utf-8"))["global"]
    assert source["jsonData"]["timeInterval"] == interval["scrape_interval"]


def test_the_region_has_the_name_that_series_will_carry() -> None:
    loaded = yaml.safe_load((COMPOSE / "prometheus.yml").read_text(encoding="utf-8"))
    controller, agent = loaded["scrape_configs"]
    region = controller_settings.load(COMPOSE / "controller.yaml").region
    assert controller["static_configs"][0]["labels"] == {"region": region}
    assert agent["relabel_configs"] == [{"target_label": "region", "replacement": region}]


@pytest.mark.parametrize(
    "command",
    [["docker-compose"], ["docker", "compose"]],
    ids=" ".join,
)
def test_compose_takes_the_file(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    if subprocess.run([*command, "version"], capture_output=True, timeout=60, check=False).returncode:
        pytest.skip(f"{shlex.join(command)} is not here")
    done = subprocess.run(
        [*command, "--profile", "demo", "-f", str(FILE), "config"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(SERVICES)


def test_documented_settings_files_are_taken() -> None:
    """Those of docs/monitoring.md."""
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    given = [yaml.safe_load(block) for block in blocks]
    admin = next(each["admin"] for each in given if "admin" in each)
    agent = next(each for each in given if "metrics_listen" in each)
    text = (COMPOSE / "controller.yaml").read_text(encoding="utf-8")
    whole = yaml.safe_load(text) | {"admin": admin}
    assert config.parse(yaml.safe_dump(whole), controller_settings.ControllerSettings).admin.open_metrics
    text = (COMPOSE / "agent-a.yaml").read_text(encoding="utf-8")
    whole = yaml.safe_load(text) | agent
    assert config.parse(yaml.safe_dump(whole), agent_settings.AgentSettings).metrics_listen is not None
