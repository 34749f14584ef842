"""`headrace gateway check` against admin ports that answer as an Envoy does, badly, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace_controller.gateway_check.commands import app
from tests.integration.operator_cli.admin_fake import Admin, serving

DUMPS = Path(__file__).parents[2] / "data" / "envoy_dumps"
PAGE = "/config_dump"


@pytest.fixture
def admin() -> Iterator[Admin]:
    with serving() as started:
        started.answer(PAGE, dump())
        yield started


def dump(**change: Any) -> Any:
    """A good page; `change` goes into the cluster of the pool."""
    page = json.loads((DUMPS / "endpoints_only.json").read_text())
    clusters = next(each for each in page["configs"] if "static_clusters" in each)["static_clusters"]
    next(each for each in clusters if each["cluster"]["name"] == "llama")["cluster"].update(change)
    return page


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["check", *arguments])


def test_the_program_has_the_command(admin: Admin) -> None:
    program = Path(sys.executable).with_name("headrace")
    ended = subprocess.run(
        [program, "gateway", "check", admin.url, "--json"], capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"url": admin.url, "clusters": ["llama"], "findings": []}


def test_a_good_gateway_is_0_and_said_to_be(admin: Admin) -> None:
    for url in (admin.url, admin.url + "/", admin.url + PAGE):
        ended = asked(url)
        assert ended.exit_code == 0
        assert ended.stdout == "clusters looked at: llama\nnothing found that undoes the weights\n"


def test_findings_are_1_with_their_mend(admin: Admin) -> None:
    admin.answer(PAGE, dump(connect_timeout="5s"))
    ended = asked(admin.url)
    assert ended.exit_code == 1
    assert "warning: cluster llama: connect_timeout: 5 s: a host that vanished" in ended.stdout
    assert "    mend: connect_timeout: 0.25s" in ended.stdout
    assert ended.stdout.endswith("0 errors, 1 warning\n")
    (finding,) = json.loads(asked(admin.url, "--json").stdout)["findings"]
    assert finding["setting"] == "connect_timeout"
    assert finding.keys() == {"level", "where", "setting", "says", "mend"}


def test_a_cluster_can_be_named(admin: Admin) -> None:
    ended = asked(admin.url, "--cluster", "headrace-controller")
    assert ended.exit_code == 1
    assert "cluster headrace-controller: type: STATIC: its endpoints come from elsewhere" in ended.stdout


def test_what_an_envoy_says_drives_no_terminal(admin: Admin) -> None:
    admin.answer(PAGE, dump(eds_cluster_config={"service_name": "\x1b[2Jx", "eds_config": {"ads": {}}}))
    assert "\x1b" not in asked(admin.url, "--cluster", "llama").stdout


@pytest.mark.parametrize(
    ("status", "page"),
    [(200, b"OK"), (200, {"cells": []}), (200, [1]), (200, b"[" * 100_000), (404, b"nothing"), (200, b"")],
)
def test_what_is_no_envoy_is_2_with_one_message(admin: Admin, status: int, page: Any) -> None:
    admin.answer(PAGE, page, status=status)
    ended = asked(admin.url)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert "is it the admin address of an Envoy?" in ended.stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:9901", "ftp://h", "http://", "http://h:x"])
def test_no_envoy_and_no_address_are_2(url: str) -> None:
    ended = asked(url)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("headrace: ")
