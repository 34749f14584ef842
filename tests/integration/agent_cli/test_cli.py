"""The `headrace-agent` program as its operator meets it: a process, its exit code and its words."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from typer.testing import CliRunner

from headrace_agent.cli import app
from headrace_agent.commands.placeholders import CONTROLLER, SITE
from tests.support.ports import free_port
from tests.support.program import EXIT_LIMIT_S, Running, assert_free, process_of

PROGRAM = [sys.executable, "-c", "from headrace_agent.cli import main; main()"]
CONFIG = """\
node: host-1
site: berlin
controllers:
  - address: 127.0.0.1:{controller}
cells:
  - id: c1
    url: http://127.0.0.1:{engine}
hardware: {{nvml: "off"}}
network: {{method: "off"}}
log: {{format: json}}
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def write(tmp_path: Path, text: str | None = None, **ports: int) -> Path:
    """A config file; ports that are not given are ones on which nobody listens."""
    path = tmp_path / "agent.yaml"
    ports = {"controller": free_port(), "engine": free_port()} | ports
    path.write_text(CONFIG.format(**ports) if text is None else text)
    return path


@asynccontextmanager
async def agent(config: Path, *before: str) -> AsyncIterator[Running]:
    """An agent that has started."""
    async with process_of(*before, *PROGRAM, "run", "--config", str(config)) as running:
        await running.logged(event="agent started")
        yield running


async def test_sigterm_ends_it_within_two_seconds_with_the_controller_away(tmp_path: Path) -> None:
    async with agent(write(tmp_path)) as running:
        line = await running.logged(event="controller unreachable")
        code, seconds = await running.terminate()
    assert code == 0
    assert seconds < EXIT_LIMIT_S
    assert "is the controller running" in line["remedy"]
    assert running.lines[-1]["event"] == "agent stopped"
    assert running.other == [], "the log holds nothing but its own lines"


async def test_sigint_is_an_orderly_end_too(tmp_path: Path) -> None:
    async with agent(write(tmp_path)) as running:
        code, seconds = await running.terminate(signal.SIGINT)
    assert code == 0
    assert seconds < EXIT_LIMIT_S
    assert running.other == []


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Accepts connections and says nothing on them."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()


async def test_sigterm_ends_it_with_everything_around_it_hung(tmp_path: Path) -> None:
    async with silent_server() as port:
        config = write(tmp_path, engine=port, controller=port)
        config.write_text(
            config.read_text().replace(
                '{nvml: "off"}', f"{{nvml: 'off', dcgm_url: 'http://127.0.0.1:{port}'}}"
            )
        )
        async with agent(config) as running:
            await asyncio.sleep(1.0)
            code, seconds = await running.terminate()
    assert code == 0
    assert seconds < EXIT_LIMIT_S


STUCK_NAMES = """\
import socket, time
def stuck(*args, **kwargs):
    time.sleep(60)
socket.getaddrinfo = stuck
"""


async def test_sigterm_ends_it_with_name_lookups_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup holds a thread that nothing can cancel and that the interpreter waits for at its end."""
    (tmp_path / "sitecustomize.py").write_text(STUCK_NAMES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    config = write(tmp_path)
    config.write_text(
        config.read_text()
        .replace("url: http://127.0.0.1", "advertise: 127.0.0.1:1\n    url: http://engine.example")
        .replace('{nvml: "off"}', "{nvml: 'off', dcgm_url: 'http://exporter.example:9400/metrics'}")
    )
    async with agent(config) as running:
        await asyncio.sleep(1.0)
        code, seconds = await running.terminate()
    assert code == 0
    assert seconds < EXIT_LIMIT_S


async def test_own_pages_are_served_and_the_port_is_free_afterwards(tmp_path: Path) -> None:
    port = free_port()
    config = write(tmp_path)
    config.write_text(config.read_text() + f"metrics_listen: 127.0.0.1:{port}\n")
    async with agent(config) as running:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == 200
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert "headrace_agent_connected" in await answer.text()
        code, seconds = await running.terminate()
    assert code == 0
    assert seconds < EXIT_LIMIT_S
    assert_free(port)


GOOD = CONFIG.format(controller=18000, engine=8000)
MISTAKES: dict[str, tuple[Callable[[str], str], tuple[str, ...]]] = {
    "unknown key": (lambda text: text + "colour: red\n", ("line 11", "colour", "unknown key")),
    "wrong type": (lambda text: text.replace("host-1", "[1, 2]"), ("line 1", "node", "string")),
    "cell twice": (
        lambda text: text.replace("hardware", "  - {id: c1, url: 'http://127.0.0.1:8001'}\nhardware"),
        ("cells", "same id 'c1'", "give each its own"),
    ),
    "not YAML": (lambda text: text + "a: [\n", ("not valid YAML", "line 12")),
    "empty": (lambda text: "", ("node", "this key is required")),
    "bad address": (lambda text: text.replace("127.0.0.1:18000", "here"), ("line 4", "write host:port")),
    "tls files": (
        lambda text: text.replace("18000", "18000\n    tls: {ca: /nonexistent/ca.pem}"),
        ("/nonexistent/ca.pem", "give a readable PEM file"),
    ),
    "a proposal as it was": (
        lambda text: text.replace("berlin", SITE).replace("127.0.0.1:18000", str(CONTROLLER)),
        (
            "agent.yaml cannot be used",
            "site: still holds the word that `discover` put there; fill it in",
            "controllers[0].address: still holds the word that `discover` put there; fill it in",
        ),
    ),
    "an engine's tls files": (
        lambda text: text.replace(
            "http://127.0.0.1:8000", "https://127.0.0.1:8000\n    tls: {ca: /none.pem}"
        ),
        ("cells (c1): tls.ca: /none.pem", "give a readable PEM file"),
    ),
}


def assert_said(mistake: str, code: int, stdout: str, stderr: str) -> None:
    assert code == 2, stderr
    assert stderr.startswith("headrace-agent: ")
    for words in MISTAKES[mistake][1]:
        assert words in stderr
    assert "Traceback" not in stderr
    assert stdout == ""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_config_that_cannot_be_used_is_not_run(tmp_path: Path, mistake: str) -> None:
    ended = run("run", "--config", write(tmp_path, MISTAKES[mistake][0](GOOD)))
    assert_said(mistake, ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_config_check_says_the_same(tmp_path: Path, mistake: str) -> None:
    ended = CliRunner().invoke(app, ["config", "check", str(write(tmp_path, MISTAKES[mistake][0](GOOD)))])
    assert_said(mistake, ended.exit_code, ended.stdout, ended.stderr)


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    ended = run("run", "--config", tmp_path / "missing.yaml")
    assert ended.returncode == 2
    assert "missing.yaml" in ended.stderr
    assert "No such file" in ended.stderr
    assert "give the path of a readable file" in ended.stderr


def test_a_config_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_bytes(b"node: \xff\xfe")
    ended = CliRunner().invoke(app, ["config", "check", str(tmp_path / "agent.yaml")])
    assert ended.exit_code == 2
    assert "not UTF-8" in ended.stderr


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        ended = run("run", "--config", write(tmp_path, GOOD + f"metrics_listen: 127.0.0.1:{port}\n"))
    assert ended.returncode == 1  # systemd tries again
    assert f"metrics_listen: 127.0.0.1:{port} is already in use" in ended.stderr
    assert "choose another port" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("192.0.2.1:9464", "192.0.2.1 is not an address of this machine"),
        ("no-such-host.invalid:9464", "the host name 'no-such-host.invalid' is not known"),
    ],
)
def test_an_address_that_is_not_here_is_no_port_in_use(tmp_path: Path, listen: str, why: str) -> None:
    ended = run("run", "--config", write(tmp_path, GOOD + f"metrics_listen: {listen}\n"))
    assert ended.returncode == 1  # systemd tries again
    assert f"metrics_listen: cannot listen on {listen}: {why}" in ended.stderr
    assert "in use" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_good_config_is_called_good(tmp_path: Path) -> None:
    ended = run("config", "check", write(tmp_path, GOOD))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "good" in ended.stdout
    assert "c1" in ended.stdout


def test_a_config_of_members_only_is_called_good_and_says_of_what(tmp_path: Path) -> None:
    lines = GOOD.splitlines(keepends=True)
    start = next(at for at, line in enumerate(lines) if line.startswith("cells:"))
    end = next((at for at in range(start + 1, len(lines)) if lines[at][0] not in " -#"), len(lines))
    text = "".join(lines[:start] + lines[end:]) + "members: [{cell: far-1, gpus: [0]}]\n"
    ended = CliRunner().invoke(app, ["config", "check", str(write(tmp_path, text))])
    assert ended.exit_code == 0, ended.stderr
    assert "member of: far-1;" in ended.stdout
    assert "cells:" not in ended.stdout


def test_config_check_warns_of_an_address_that_gateways_cannot_reach(tmp_path: Path) -> None:
    text = """node: n
site: s
controllers: [{address: "10.0.0.5:18000"}]
cells: [{id: c1, url: "http://127.0.0.1:8000"}]
"""
    ended = CliRunner().invoke(app, ["config", "check", str(write(tmp_path, text))])
    assert ended.exit_code == 0
    assert "warning: cells: c1: gateways on other hosts cannot reach 127.0.0.1:8000" in ended.stderr
    assert "set advertise" in ended.stderr


def test_the_example_in_the_help_is_a_good_config(tmp_path: Path) -> None:
    text = run("--help").stdout
    start, end = text.index("node: gpu-host-1"), text.index("Try it:")
    example = "    " + text[start:end]
    lines = [line[4:] for line in example.splitlines()]
    ended = run("config", "check", write(tmp_path, "\n".join(lines) + "\n"))
    assert ended.returncode == 0, ended.stderr


def test_version_and_missing_arguments() -> None:
    assert run("--version").stdout.startswith("headrace-agent 0.")
    ended = run("run")
    assert ended.returncode == 2
    assert "--config" in ended.stderr
