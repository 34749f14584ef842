"""The agent's settings file: defaults, and every mistake named with its line and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_agent import settings
from headrace_agent.settings import AgentSettings
from headrace_shared import config
from headrace_shared.config import ConfigError, Problem
from headrace_shared.net import HostPort

GOOD = """\
node: host-1
site: berlin
controllers:
  - address: 10.0.0.5:18000
cells:
  - id: c1
    url: http://127.0.0.1:8000/
    gpus: [0, GPU-1234]
  - id: c2
    url: https://engine.example
    advertise: "[fd00::7]:8443"
"""


def problems(text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, AgentSettings)
    return caught.value.problems


def test_a_short_file_is_enough() -> None:
    loaded = config.parse(GOOD, AgentSettings)
    assert loaded.controllers[0].address == HostPort("10.0.0.5", 18000)
    assert loaded.cells[0].gpus == (0, "GPU-1234")
    assert loaded.metrics_listen is None
    assert (loaded.engine.scrape_interval_s, loaded.engine.probe_interval_s) == (0.5, 0.1)
    assert loaded.hardware.dcgm_interval_s == 0.25


def test_the_advertised_address_is_the_urls_unless_said_otherwise() -> None:
    first, second = config.parse(GOOD, AgentSettings).cells
    assert first.address == HostPort("127.0.0.1", 8000)
    assert str(second.address) == "[fd00::7]:8443"
    no_port = GOOD.replace('\n    advertise: "[fd00::7]:8443"', "").replace("engine.example", "10.9.8.7")
    assert config.parse(no_port, AgentSettings).cells[1].address == HostPort("10.9.8.7", 443)
    local = config.parse(GOOD.replace("http://127.0.0.1:8000/", "http://localhost:8000"), AgentSettings)
    assert local.cells[0].address == HostPort("127.0.0.1", 8000)


def test_a_host_name_that_gateways_cannot_use_asks_for_advertise() -> None:
    (problem,) = problems(GOOD.replace('\n    advertise: "[fd00::7]:8443"', ""))
    assert problem.field == "cells[1]"
    assert "'engine.example' is a name; set advertise" in problem.message


def test_settings_cannot_change_after_loading() -> None:
    loaded = config.parse(GOOD, AgentSettings)
    with pytest.raises(ValueError, match="frozen"):
        loaded.node = "other"  # type: ignore[misc]


def test_an_unknown_key_is_named_with_its_line() -> None:
    (problem,) = problems(GOOD.replace("    gpus:", "    gpu:"))
    assert (problem.line, problem.field) == (8, "cells[0].gpu")
    assert "unknown key" in problem.message


def test_two_cells_with_one_id_are_refused() -> None:
    (problem,) = problems(GOOD.replace("id: c2", "id: c1"))
    assert "same id 'c1'" in problem.message
    assert "give each its own" in problem.message


def test_two_cells_with_one_address_are_refused() -> None:
    (problem,) = problems(GOOD.replace("[fd00::7]:8443", "127.0.0.1:8000"))
    assert "same advertised address '127.0.0.1:8000'" in problem.message


@pytest.mark.parametrize(
    ("right", "wrong", "line", "field"),
    [
        ("node: host-1", "node: [host-1]", 1, "node"),
        ("node: host-1", "node: 'no spaces allowed'", 1, "node"),
        ("10.0.0.5:18000", "10.0.0.5", 4, "controllers[0].address"),
        ("10.0.0.5:18000", "fd00::7:18000", 4, "controllers[0].address"),
        ("http://127.0.0.1:8000/", "127.0.0.1:8000", 7, "cells[0].url"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:port", 7, "cells[0].url"),
        ("id: c1", "id: ''", 6, "cells[0].id"),
        ("gpus: [0, GPU-1234]", "kind: ollama", 8, "cells[0].kind"),
        ("gpus: [0, GPU-1234]", "metrics_url: 127.0.0.1:8002", 8, "cells[0].metrics_url"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(right: str, wrong: str, line: int, field: str) -> None:
    assert (line, field) in [(each.line, each.field) for each in problems(GOOD.replace(right, wrong, 1))]


def test_a_metrics_address_with_a_query_is_refused_and_not_cut() -> None:
    text = GOOD.replace("gpus: [0, GPU-1234]", "metrics_url: http://127.0.0.1:8002/metrics?name=x")
    (problem,) = problems(text)
    assert problem.field == "cells[0]"
    assert "metrics_url has a query" in problem.message


def test_all_mistakes_are_listed_at_once() -> None:
    text = GOOD.replace("site: berlin\n", "").replace("10.0.0.5:18000", "nowhere") + "nodes: 3\n"
    assert {each.field for each in problems(text)} >= {"site", "controllers[0].address", "nodes"}


@pytest.mark.parametrize(
    "addition",
    [
        "engine: {probe_interval_s: 0}",
        "engine: {scrape_interval_s: .nan}",
        "hardware: {dcgm_timeout_s: -1}",
        "hardware: {nvml: maybe}",
        "network: {method: udp}",
        "goodbye_grace_s: -1",
        "log: {level: loud}",
        "metrics_listen: 9464",
    ],
)
def test_values_out_of_range_are_refused(addition: str) -> None:
    (problem,) = problems(GOOD + addition + "\n")
    assert problem.line == 12


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml.*\n.*No such file"):
        settings.load(tmp_path / "missing.yaml")
