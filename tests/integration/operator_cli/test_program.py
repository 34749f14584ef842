"""The `headrace` program itself: pipes, terminals, what it loads, and what it says when nothing works."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.operator_cli.admin_fake import Admin, serving
from tests.support import fleet_pages as pages

PROGRAM = Path(sys.executable).with_name("headrace")
HEAVY = ("typer", "click", "rich", "textual", "grpc", "google", "pydantic", "numpy", "aiohttp", "structlog")
CELLS = [pages.cell("c1"), pages.failed("c2", "a-site")]


@pytest.fixture
def admin() -> Iterator[Admin]:
    with serving() as started:
        started.answer("/api/v1/status", pages.status(*CELLS))
        started.answer("/api/v1/cells?limit=1000", pages.page(*CELLS))
        started.answer("/api/v1/cells?limit=1000&site=nowhere", pages.page())
        yield started


def environ(**change: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "NO_COLOR"))}
    return kept | {"TERM": "xterm-256color"} | change


def headrace(*arguments: str, **change: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environ(**change),
        check=False,
        stdin=subprocess.DEVNULL,
    )


def on_terminal(*arguments: str, **change: str) -> str:
    """What the program writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    try:
        ended = subprocess.run(
            [PROGRAM, *arguments], stdout=theirs, stderr=subprocess.PIPE, timeout=60, check=False,
            env=environ(COLUMNS="80", **change), stdin=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        theirs = -1
        said = bytearray()
        try:
            while piece := os.read(ours, 65536):
                said += piece
        except OSError:
            pass  # The other end is closed.
        assert ended.returncode == 0, ended.stderr
        return said.decode().replace("\r\n", "\n")
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)


def test_status_loads_nothing_that_it_does_not_need(admin: Admin) -> None:
    """What takes longer to load than a controller takes to answer."""
    said = subprocess.run(
        [sys.executable, "-X", "importtime", PROGRAM, "status", "--url", admin.url],
        capture_output=True, text=True, timeout=60, check=False, env=environ(),
    )  # fmt: skip
    assert said.stdout.startswith("region eu-1: weights are published\n"), said.stderr[-500:]
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in said.stderr.splitlines()}
    assert "headrace_controller" in loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize("options", [(), ("--json",), ("--check",)])
def test_status_says_the_same_whichever_way_it_starts(admin: Admin, options: tuple[str, ...]) -> None:
    """The short way and the whole program are one command."""
    program = [sys.executable, "-c", "from headrace_controller.operator_cli.program import app; app()"]
    whole = subprocess.run(
        [*program, "status", *options, "--url", admin.url],
        capture_output=True, text=True, timeout=60, check=False, env=environ(),
    )  # fmt: skip
    short = headrace("status", *options, "--url", admin.url)
    assert (short.returncode, short.stdout, short.stderr) == (whole.returncode, whole.stdout, whole.stderr)


def test_status_takes_its_controller_from_the_environment(admin: Admin) -> None:
    ended = headrace("status", "--json", HEADRACE_URL=admin.url, HEADRACE_TOKEN="s3cret")
    assert json.loads(ended.stdout)["region"] == "eu-1"
    assert admin.tokens == ["Bearer s3cret"]


@pytest.mark.parametrize("command", ["top", "tail", "cells"])
def test_a_pipe_gets_no_control_codes(admin: Admin, command: str) -> None:
    more = {"top": ("--rounds", "1"), "tail": ("--count", "1")}.get(command, ())
    ended = headrace(command, *more, "--url", admin.url)
    assert ended.returncode == 0, ended.stderr
    assert "c1" in ended.stdout
    assert all(line.isprintable() for line in ended.stdout.splitlines())


@pytest.mark.parametrize("command", ["top", "tail"])
def test_a_reader_that_has_enough_ends_it_quietly(admin: Admin, command: str) -> None:
    process = subprocess.Popen(
        [PROGRAM, command, "--interval", "0.2", "--url", admin.url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environ(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline()
        process.stdout.close()
        admin.answer("/api/v1/cells?limit=1000", pages.page(*CELLS, pages.cell("c3")))
        try:
            assert process.wait(30) == 141
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_a_terminal_has_colour_and_80_columns(admin: Admin) -> None:
    long = pages.cell("c3", cause="the engine said that it cannot " * 5)
    admin.answer("/api/v1/cells?limit=1000", pages.page(*CELLS, long))
    said = on_terminal("cells", "--url", admin.url)
    assert "\x1b[31mFAILED\x1b[0m" in said
    for code in ("0", "1", "31", "32"):
        said = said.replace(f"\x1b[{code}m", "")
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("change", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colour_gets_none(admin: Admin, change: dict[str, str]) -> None:
    for arguments in (("cells",), ("status",), ("top", "--rounds", "1")):
        said = on_terminal(*arguments, "--url", admin.url, **change)
        assert "c2" in said or "a-site" in said
        assert "\x1b" not in said


def test_a_terminal_that_takes_ascii_only_gets_question_marks(admin: Admin) -> None:
    admin.answer("/api/v1/cells?limit=1000", pages.page(pages.cell("c1", cause="Überlast")))
    said = on_terminal("cells", "--url", admin.url, PYTHONIOENCODING="ascii")
    assert "?berlast" in said


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ("status", "--url", "http://127.0.0.1:1"),
            3,
            "controller running, and is --url (or HEADRACE_URL)",
        ),
        (("top", "--url", "http://127.0.0.1:1"), 3, "is the controller running"),
        (("tail", "--url", "http://127.0.0.1:1"), 3, "is the controller running"),
        (("status", "--url", "nonsense"), 2, "write http://HOST:PORT"),
        (("status", "--ca", "/nowhere.pem", "--url", "https://127.0.0.1:1"), 2, "give a PEM file"),
    ],
)
def test_what_cannot_work_says_the_next_step(arguments: tuple[str, ...], code: int, words: str) -> None:
    ended = headrace(*arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert words in " ".join(ended.stderr.replace("│", " ").split())
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["status", "top", "tail", "cells"])
def test_a_wrong_token_says_where_to_give_one(admin: Admin, command: str) -> None:
    for path in ("/api/v1/status", "/api/v1/cells?limit=1000"):
        admin.answer(path, {"error": "this token is not known"}, status=401)
    ended = headrace(command, "--url", admin.url, "--token", "wrong")
    assert (ended.returncode, ended.stdout) == (4, "")
    assert ended.stderr == "headrace: this token is not known; give one by HEADRACE_TOKEN or --token\n"


def test_a_site_without_cells_says_where_the_sites_are(admin: Admin) -> None:
    ended = headrace("tail", "--site", "nowhere", "--url", admin.url)
    assert ended.returncode == 1
    assert "there is no cell at site 'nowhere'; `headrace status` shows the sites" in ended.stderr


def test_https_to_a_port_without_tls_says_so(admin: Admin) -> None:
    ended = headrace("status", "--url", admin.url.replace("http:", "https:"))
    assert ended.returncode == 3
    assert "write http:// in --url" in ended.stderr


def test_tail_shows_heartbeats_as_lines_and_objects(admin: Admin) -> None:
    said = headrace("tail", "--count", "1", "--url", admin.url).stdout
    assert "berlin/c1  READY  pressure 0.250  weight 70 70" in said
    told = json.loads(headrace("tail", "--count", "1", "--json", "--url", admin.url).stdout)
    assert (told["cell"]["id"], told["note"]) == ("c1", "")
    admin.answer("/api/v1/cells/c1", pages.detail(CELLS[0]))
    assert "berlin/c1" in headrace("tail", "c1", "--count", "1", "--url", admin.url).stdout
    assert headrace("tail", "c9", "--url", admin.url).returncode == 1
