"""The agent's settings file: defaults, and every mistake named with its line and a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from headrace_agent import settings
from headrace_agent.settings import AgentSettings
from headrace_shared import config
from headrace_shared.config import ConfigError, Problem
from headrace_shared.net import HostPort
from headrace_shared.reference import sections

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
    assert loaded.hardware.dcgm_interval_s == 0.5


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


@pytest.mark.parametrize(
    "wrong",
    [
        "url: http://0.0.0.0:8000",
        "url: http://[::]:8000",
        "advertise: 0.0.0.0:8000",
        'advertise: "[::]:8000"',
        "advertise: 239.0.0.1:8000",
        "advertise: 169.254.7.7:8000",
        'advertise: "[fe80::1%eth0]:8000"',
        "advertise: 10.0.1.7:0",
    ],
)
def test_an_address_that_every_controller_refuses_is_refused_at_the_start(wrong: str) -> None:
    cell = "url: http://10.0.1.7:8000\n    " if wrong.startswith("advertise") else ""
    (problem,) = problems(GOOD.replace("url: http://127.0.0.1:8000/", cell + wrong))
    assert problem.field == "cells[0]"
    assert "gateways cannot reach" in problem.message
    assert "set advertise" in problem.message


@pytest.mark.parametrize("gpu", ["-1", "true", "1.5", "''", "[]"])
def test_a_gpu_is_an_index_or_a_name(gpu: str) -> None:
    (problem,) = problems(GOOD.replace("GPU-1234", gpu))
    assert (problem.line, problem.field) == (8, "cells[0].gpus[1]")


def test_labels_are_refused_and_not_cut() -> None:
    many = ", ".join(f"k{place}: v" for place in range(65))
    for labels in (f"{{{many}}}", f"{{rack: {'x' * 1025}}}"):
        (problem,) = problems(GOOD.replace("gpus: [0, GPU-1234]", f"labels: {labels}"))
        assert problem.field.startswith("cells[0].labels")


def test_a_controller_that_stands_twice_is_refused() -> None:
    text = GOOD.replace("18000\n", "18000\n  - {address: '10.0.0.5:18000', tls: {ca: ca.pem}}\n")
    (problem,) = problems(text)
    assert "controllers: 10.0.0.5:18000 stands twice" in problem.message


@pytest.mark.parametrize(("right", "wrong"), [("5:18000", "5:0"), ("127.0.0.1:8000", "127.0.0.1:0")])
def test_a_server_has_a_port(right: str, wrong: str) -> None:
    (problem,) = problems(GOOD.replace(right, wrong))
    assert "port 0" in problem.message


@pytest.mark.parametrize("end", ["?key=1", "#top"])
def test_what_is_not_sent_of_an_engines_address_is_refused(end: str) -> None:
    (problem,) = problems(GOOD.replace("8000/", f"8000/{end}"))
    assert "url has a query or a fragment" in problem.message


def test_a_password_in_an_address_is_not_shown() -> None:
    assert settings.without_secrets("https://me:secret@[fd00::1]:8/p?q=1") == "https://[fd00::1]:8/p?q=1"
    assert settings.without_secrets("http://engine:8000/a@b") == "http://engine:8000/a@b"
    for wrong in ("me:secret@host:port", "me:secret@engine:8000"):
        (problem,) = problems(GOOD.replace("http://127.0.0.1:8000/", f"http://{wrong}"))
        assert "secret" not in problem.message


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


OFF = ["hardware.nvml", "network.method"]


def in_section(place: str, value: str) -> str:
    section, key = place.split(".")
    return f"{GOOD}{section}: {{{key}: {value}}}\n"


@pytest.mark.parametrize("value", ["off", "'off'", "no", "false"])
@pytest.mark.parametrize("place", OFF)
def test_off_needs_no_quotes(place: str, value: str) -> None:
    """YAML reads the bare word as false."""
    section, key = place.split(".")
    loaded = config.parse(in_section(place, value), AgentSettings)
    assert getattr(getattr(loaded, section), key) == "off"


@pytest.mark.parametrize("value", ["on", "yes", "true"])
@pytest.mark.parametrize("place", OFF)
def test_on_is_no_choice_and_the_refusal_says_what_is(place: str, value: str) -> None:
    (problem,) = problems(in_section(place, value))
    assert (problem.line, problem.field) == (12, place)
    assert "write auto or off" in problem.message


def test_every_setting_with_an_off_is_among_them() -> None:
    found = [
        f"{section.place}.{name}"
        for section in sections(AgentSettings)
        for name, field in section.model.model_fields.items()
        if {"off", "on"} & set(get_args(field.annotation))
    ]
    assert found == OFF


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml.*\n.*No such file"):
        settings.load(tmp_path / "missing.yaml")
