"""The settings files that docs/configuration.md shows are good ones."""

from __future__ import annotations

import re
from pathlib import Path

from headrace_agent import settings as agent_settings
from headrace_controller import settings as controller_settings
from headrace_shared import config

ROOT = Path(__file__).resolve().parents[3]


def documented(start: str) -> str:
    """The YAML block of docs/configuration.md that begins with `start`."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "configuration.md").read_text(), re.DOTALL)
    return next(block for block in blocks if block.startswith(start))


def test_the_documented_files_are_taken() -> None:
    agent = config.parse(documented("node:"), agent_settings.AgentSettings)
    controller = config.parse(documented("region:"), controller_settings.ControllerSettings)
    assert agent.cells[0].address.port == 8000
    assert controller.pressure.signals["ttft_p95_s"].high == 2.0
