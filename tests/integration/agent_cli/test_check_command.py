"""`headrace-agent check`, as its operator meets it: what it finds, what it asks, and how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace_agent.commands.check import run as check
from headrace_agent.commands.discover.found import Candidate, Engine, Host, Placed
from headrace_agent.commands.errors import CommandError
from headrace_lab.stack.ports import free_ports
from headrace_shared.clock import SystemClock
from headrace_shared.signals import NAMES
from tests.integration.agent_app.fake_engine import MODELS, fake_engine
from tests.integration.agent_cli.program import PROGRAM, Ended, http_server, run, silent_server
from tests.integration.agent_cli.test_check_controllers import grpc_server
from tests.integration.agent_hardware.exporter_fake import serving
from tests.support.program import process_of
from tests.unit.agent.collectors.app.engine_pages import vllm_page

CLOCK = SystemClock()
CONFIG = """\
node: host-1
site: berlin
controllers:
  - address: 127.0.0.1:{controller}
cells:
  - id: c1
    url: http://127.0.0.1:{engine}
    gpus: [0]
hardware: {{nvml: "off", dcgm_url: "http://127.0.0.1:{exporter}"}}
network: {{method: tcp}}
metrics_listen: 127.0.0.1:{listen}
"""


@pytest.fixture
def unused() -> list[int]:
    """Ports that were free just now."""
    return free_ports(6)


def write(folder: Path, unused: list[int], text: str = CONFIG, **ports: int) -> Path:
    """A config; ports that are not given are ones on which nobody listens."""
    names = ("controller", "engine", "exporter", "listen")
    path = folder / "agent.yaml"
    path.write_text(text.format(**(dict(zip(names, unused, strict=False)) | ports)))
    return path


@asynccontextmanager
async def good_host() -> AsyncIterator[tuple[Any, Any, int]]:
    """An engine, an exporter and a controller, all in order."""
    async with fake_engine() as engine, serving() as exporter, grpc_server() as controller:
        engine.page = vllm_page(waiting=3, running=1, kv=0.5)
        yield engine, exporter, controller


def findings(ended: Ended, about: str) -> list[dict[str, str]]:
    return [each for each in ended.data["findings"] if each["about"] == about]


def one(ended: Ended, about: str, level: str, *words: str) -> dict[str, str]:
    """The finding of this level that says these words."""
    fit = [
        each
        for each in findings(ended, about)
        if each["level"] == level and all(word in each["what"] + each["remedy"] for word in words)
    ]
    assert len(fit) == 1, ended.data["findings"]
    return fit[0]


async def test_a_host_in_order_is_called_so_and_not_burdened(tmp_path: Path, unused: list[int]) -> None:
    async with good_host() as (engine, exporter, controller):
        config = write(tmp_path, unused, engine=engine.port, exporter=exporter.port, controller=controller)
        gateway = f"127.0.0.1:{controller}"
        ended = await run("check", "--config", config, "--gateway", gateway, "--wait", "3", "--json")
        asked, reads = engine.asked, exporter.requests
    assert ended.code == 0, ended.out
    assert "/v1/completions" not in asked, "no completion without --warm-up"
    assert asked["/metrics"] <= 7, "about one a second"
    assert asked["/health"] <= 10
    assert reads <= 10
    assert ended.data["status"] != "error"
    (cell,) = ended.data["cells"]
    assert (cell["id"], cell["state"], cell["kind"], cell["version"]) == ("c1", "serving", "vllm", "0.32.0")
    assert list(cell["signals"]) == list(NAMES)
    shown = {name for name, value in cell["signals"].items() if value is not None}
    assert shown == {"queue_depth", "kv_fill", "gpu_util", "compute_active", "rtt_ms", "jitter_ms"}
    assert cell["signals"]["queue_depth"] == 3
    assert cell["source"]["gpu_util"] == "dcgm"
    assert cell["source"]["rtt_ms"] == f"tcp connect to {gateway}"
    assert all(age >= 0 for age in cell["age_s"].values())
    one(ended, "engine of c1", "ok", "is healthy")
    one(ended, f"controller 127.0.0.1:{controller}", "ok", "gRPC")
    one(ended, "metrics_listen", "ok", "is free")


async def test_a_warm_up_is_asked_only_on_request(tmp_path: Path, unused: list[int]) -> None:
    async with good_host() as (engine, exporter, controller):
        config = write(tmp_path, unused, engine=engine.port, exporter=exporter.port, controller=controller)
        engine.completion = 401
        ended = await run("check", "--config", config, "--wait", "2", "--warm-up", "--json")
        assert engine.asked["/v1/completions"] >= 1
    assert ended.code == 1
    one(ended, "engine of c1", "error", "the warm-up got no completion", "401", "api_key_file")


async def test_a_host_on_which_nothing_is_there(tmp_path: Path, unused: list[int]) -> None:
    config = write(tmp_path, unused)
    gateway = f"127.0.0.1:{unused[5]}"
    ended = await run("check", "--config", config, "--gateway", gateway, "--wait", "2", "--json")
    assert ended.code == 1
    assert ended.data["status"] == "error"
    one(ended, "engine of c1", "error", "refused", "start the engine")
    one(ended, "GPUs of c1", "error", "no source gives figures")
    one(ended, "dcgm", "error", "refused", "start the exporter")
    one(ended, f"controller 127.0.0.1:{unused[0]}", "error", "refused", "start the controller")
    one(ended, f"path to {gateway}", "error", "cannot be measured")
    assert [each["level"] for each in ended.data["findings"]] == sorted(
        (each["level"] for each in ended.data["findings"]), key=["error", "warn", "ok"].index
    )


async def test_an_exporter_that_collects_seldom_and_one_that_fails(tmp_path: Path, unused: list[int]) -> None:
    async with good_host() as (engine, exporter, controller):
        config = write(tmp_path, unused, engine=engine.port, exporter=exporter.port, controller=controller)
        exporter.mode = "still"
        still = await run("check", "--config", config, "--wait", "4", "--json")
        exporter.mode = "500"
        broken = await run("check", "--config", config, "--wait", "3", "--json")
    one(still, "dcgm", "warn", "stand still", "-c 500")
    one(broken, "dcgm", "error", "HTTP 500", "look at its log")


async def test_a_gpu_that_is_not_there(tmp_path: Path, unused: list[int]) -> None:
    async with good_host() as (engine, exporter, controller):
        config = write(
            tmp_path,
            unused,
            CONFIG.replace("[0]", "[7]"),
            engine=engine.port,
            exporter=exporter.port,
            controller=controller,
        )
        ended = await run("check", "--config", config, "--wait", "1", "--json")
    assert ended.code == 1
    one(ended, "dcgm", "warn", "GPU 7 has no figures", "headrace-agent discover")


async def test_an_engine_with_a_key_and_without_metrics(tmp_path: Path, unused: list[int]) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    key.chmod(0o644)
    text = CONFIG.replace("gpus: [0]", f"gpus: [0]\n    api_key_file: {key}")
    routes = {"/health": (200, b""), "/v1/models": (401, {}), "/metrics": (404, b"")}
    async with http_server(routes) as engine:
        ended = await run(
            "check", "--config", write(tmp_path, unused, text, engine=engine), "--wait", "6", "--json"
        )
    one(ended, "engine of c1", "error", "models are not known", "401", "api_key_file")
    one(ended, "engine of c1", "error", "metrics page", "404", "switch the engine's metrics on")
    one(ended, "config", "warn", "others may read", f"chmod o= {key}")


async def test_an_engine_that_hangs(tmp_path: Path, unused: list[int]) -> None:
    async with silent_server() as engine:
        ended = await run(
            "check", "--config", write(tmp_path, unused, engine=engine), "--wait", "4", "--json"
        )
    assert ended.code == 1
    one(ended, "engine of c1", "error", "answers nothing", "restart it")


async def test_beside_an_agent_that_runs(tmp_path: Path, unused: list[int]) -> None:
    async with fake_engine() as engine:
        engine.page = vllm_page(responses={"2xx": 1})
        config = write(tmp_path, unused, engine=engine.port)
        async with process_of(*PROGRAM, "run", "--config", str(config)) as running:
            await running.logged(event="agent started")
            ended = await run("check", "--config", config, "--wait", "1", "--json")
            renamed = tmp_path / "other.yaml"
            renamed.write_text(config.read_text().replace("host-1", "host-2"))
            other = await run("check", "--config", renamed, "--wait", "1", "--json")
    one(ended, "metrics_listen", "ok", "the agent of host-1 runs already")
    one(other, "metrics_listen", "warn", "the agent of node host-1 listens")


async def test_a_port_that_something_else_holds(tmp_path: Path, unused: list[int]) -> None:
    async with http_server({"/healthz": (200, MODELS)}) as port:
        ended = await run("check", "--config", write(tmp_path, unused, listen=port), "--wait", "1", "--json")
    one(ended, "metrics_listen", "error", "already in use", "choose another port")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--config", "/nonexistent/agent.yaml"), "/nonexistent/agent.yaml cannot be used"),
        (("--config", "{config}", "--gateway", "host:port"), "--gateway: 'host:port' is no gateway"),
    ],
)
async def test_what_cannot_be_checked(
    tmp_path: Path, unused: list[int], arguments: tuple[str, ...], words: str
) -> None:
    config = write(tmp_path, unused)
    ended = await run("check", *(each.format(config=config) for each in arguments), "--json")
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


async def test_a_bad_config_lists_all_that_is_wrong(tmp_path: Path, unused: list[int]) -> None:
    config = write(tmp_path, unused, CONFIG + "colour: red\ncells_: 1\n")
    ended = await run("check", "--config", config)
    assert (ended.code, ended.out) == (2, "")
    assert "colour: unknown key" in ended.err
    assert "cells_: unknown key" in ended.err


async def test_tables_for_people(tmp_path: Path, unused: list[int]) -> None:
    async with good_host() as (engine, exporter, controller):
        config = write(tmp_path, unused, engine=engine.port, exporter=exporter.port, controller=controller)
        ended = await run("check", "--config", config, "--wait", "3")
    assert f"cell c1 at http://127.0.0.1:{engine.port}: serving" in ended.out
    row = next(line for line in ended.out.splitlines() if " queue_depth " in line)
    assert "3 requests" in row
    assert ended.out.rstrip().endswith("0 errors")


async def test_a_proposal_that_was_not_filled_in(tmp_path: Path, unused: list[int]) -> None:
    text = CONFIG.replace("berlin", "FILL-IN-THE-SITE")
    ended = await run("check", "--config", write(tmp_path, unused, text), "--wait", "1", "--json")
    one(ended, "config", "error", "site still holds", "fill it in")


STUCK_NAMES = """\
import socket, time
def stuck(*args, **kwargs):
    time.sleep(60)
socket.getaddrinfo = stuck
"""


async def test_it_ends_with_name_lookups_stuck(tmp_path: Path, unused: list[int]) -> None:
    """A lookup holds a thread that nothing can cancel and that the interpreter waits for at its end."""
    (tmp_path / "sitecustomize.py").write_text(STUCK_NAMES)
    text = CONFIG.replace("url: http://127.0.0.1", "advertise: 127.0.0.1:1\n    url: http://engine.example")
    text = text.replace("http://127.0.0.1:{exporter}", "http://exporter.example").replace(
        "127.0.0.1:{controller}", "controller.example:18000"
    )
    config = write(tmp_path, unused, text)
    began = CLOCK.now()
    ended = await run("check", "--config", config, "--wait", "1", "--json", PYTHONPATH=str(tmp_path))
    assert CLOCK.now() - began < 40, "the lookups take 60 s"
    assert ended.code == 1
    one(ended, "engine of c1", "error", "gives no sign", "name server")
    one(ended, "controller controller.example:18000", "error", "name server does not answer")


def test_without_a_config_the_proposal_for_this_host_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Candidate("127.0.0.1", 8000, ("0.0.0.0",)), "vllm", shows_metrics=True)
    found = Host("host-1", "10.0.1.7", (Placed(engine, ("GPU-0",)),))
    monkeypatch.setattr(check, "look_around", lambda ports: found)
    settings, proposed = check.find_settings(None)
    assert (settings.cells[0].url, proposed) == ("http://127.0.0.1:8000", True)
    monkeypatch.setattr(check, "look_around", lambda ports: Host("host-1"))
    with pytest.raises(CommandError, match="give --config"):
        check.find_settings(None)
