"""`headrace-agent discover`: from an engine that runs to a config that loads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace_agent import settings
from tests.integration.agent_cli.program import http_server, run
from tests.integration.agent_hardware.nvml_stub import Stub, built
from tests.support.ports import free_port
from tests.support.program import Running, process_of
from tests.unit.agent.collectors.app.engine_pages import vllm_page

ROUTES = {"/metrics": (200, vllm_page()), "/v1/models": (200, {"data": [{"id": "m", "max_model_len": 4096}]})}
ENGINE = (sys.executable, "-m", "headrace_lab.cell", "--port", "0", "--host", "0.0.0.0")

GIVEN = ("--site", "berlin", "--controller", "10.0.0.5:18000", "--controller", "[fd00::5]:18000")


async def port_of(running: Running) -> int:
    line = await running.logged(event="serving")
    return int(line["address"].rpartition(":")[2])


async def test_an_engine_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is a process of its own, and NVML names that process."""
    stub = Stub(tmp_path, built(), monkeypatch)
    config = tmp_path / "agent.yaml"
    async with process_of(*ENGINE) as engine:
        port = await port_of(engine)
        stub.set(gpus=2, pid=engine.process.pid)
        ended = await run("discover", "--ports", str(port), "--json", "--output", config, *GIVEN)
    assert ended.code == 0, ended.err
    (found,) = ended.data["engines"]
    assert (found["kind"], found["port"]) == ("vllm", port)
    assert engine.process.pid in found["pids"]
    assert found["gpus"] == ["GPU-stub-0"]
    assert "NVML" in found["gpus_by"]
    assert [gpu["uuid"] for gpu in ended.data["gpus"]] == ["GPU-stub-0", "GPU-stub-1"]
    loaded = settings.load(config)
    (cell,) = loaded.cells
    assert cell.gpus == ("GPU-stub-0",)
    assert cell.url == f"http://127.0.0.1:{port}"
    assert cell.address.port == port
    assert ended.data["config"] == config.read_text()
    assert (loaded.site, [str(each.address) for each in loaded.controllers]) == (
        "berlin",
        ["10.0.0.5:18000", "[fd00::5]:18000"],
    )
    checked = await run("config", "check", config)
    assert checked.code == 0, checked.err


async def test_the_proposal_is_printed_and_no_file_is_lost(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    async with http_server(ROUTES) as port:
        printed = await run("discover", "--ports", str(port))
        config.write_text("mine")
        kept = await run("discover", "--ports", str(port), "--output", config)
        assert (kept.code, kept.out) == (2, "")
        assert "--force" in kept.err
        assert config.read_text() == "mine"
        replaced = await run("discover", "--ports", str(port), "--output", config, "--force")
    assert printed.code == 0, printed.err
    assert f"url: http://127.0.0.1:{port}" in printed.out
    assert (replaced.code, replaced.out) == (0, "")
    assert "FILL IN" in replaced.err
    assert config.read_text() == printed.out
    assert os.listdir(tmp_path) == ["agent.yaml"], "no file is left half-written"


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    async with http_server(ROUTES) as port:
        ended = await run("discover", "--ports", str(port), "--output", tmp_path / "none" / "agent.yaml")
    assert ended.code == 2
    assert "--output" in ended.err


async def test_nothing_found_says_what_to_do() -> None:
    port = free_port()
    ended = await run("discover", "--ports", str(port))
    assert (ended.code, ended.out) == (1, "")
    for words in ("no engine answers", "--ports", "as root"):
        assert words in ended.err
    as_json = await run("discover", "--ports", str(port), "--json")
    assert as_json.code == 1
    assert as_json.data["engines"] == []
    assert as_json.data["config"] is None


async def test_ports_that_are_none() -> None:
    ended = await run("discover", "--ports", "http")
    assert (ended.code, ended.out) == (2, "")
    assert "write 8000,8001 or 8000-8010" in ended.err


async def test_a_host_of_many_needs_no_editor(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    async with http_server(ROUTES) as port:
        left = await run("discover", "--ports", str(port), "--output", config)
        refused = await run("config", "check", config)
        ended = await run("discover", "--ports", str(port), "--output", config, "--force", *GIVEN)
    assert "FILL IN" in left.err
    assert refused.code == 2
    assert "site: still holds" in refused.err
    assert ended.code == 0, ended.err
    assert (await run("config", "check", config)).code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--site", "two words"), "--site: 'two words' is no name; write letters"),
        (("--site", ""), "--site: '' is no name"),
        (("--controller", "10.0.0.5"), "--controller: '10.0.0.5' is no address; write host:port"),
        (
            ("--controller", "10.0.0.5:0"),
            "--controller: '10.0.0.5:0' has port 0; write that of its listen.telemetry",
        ),
        (("--controller", "a:1", "--controller", "a:1"), "--controller: a:1 is given twice"),
    ],
)
async def test_what_is_given_and_cannot_be(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    ended = await run("discover", "--output", tmp_path / "agent.yaml", *options)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert os.listdir(tmp_path) == []
