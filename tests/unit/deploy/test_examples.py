"""The settings files that the repository ships are good ones, and agree with each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from headrace_agent import settings as agent_settings
from headrace_controller import settings as controller_settings
from headrace_shared import config

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "deploy" / "compose"


@pytest.mark.parametrize("path", sorted(COMPOSE.glob("agent-*.yaml")), ids=lambda path: path.stem)
def test_the_compose_agents_speak_to_the_compose_controller(path: Path) -> None:
    loaded = agent_settings.load(path)
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    controller = services["controller"]["networks"]["lab"]["ipv4_address"]
    cells = {
        each["networks"]["lab"]["ipv4_address"] for name, each in services.items() if name.startswith("cell-")
    }
    assert loaded.controllers[0].address.host == controller
    assert {cell.address.host for cell in loaded.cells} <= cells


def test_the_compose_controller_knows_the_compose_envoy() -> None:
    loaded = controller_settings.load(COMPOSE / "controller.yaml")
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert loaded.gateways[0].host == services["envoy"]["networks"]["lab"]["ipv4_address"]


def documented(start: str) -> str:
    """The YAML block of docs/configuration.md that begins with `start`."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "configuration.md").read_text(), re.DOTALL)
    return next(block for block in blocks if block.startswith(start))


def test_the_documented_files_are_taken() -> None:
    agent = config.parse(documented("node:"), agent_settings.AgentSettings)
    controller = config.parse(documented("region:"), controller_settings.ControllerSettings)
    assert agent.cells[0].address.port == 8000
    assert controller.pressure.signals["ttft_p95_s"].high == 2.0
