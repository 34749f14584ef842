"""`headrace-lab load` as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace_lab.cli import app
from headrace_lab.stack.ports import free_ports


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["load", *arguments])
    return result.exit_code, result.output


def test_a_server_that_is_not_there_gives_a_summary_and_status_1(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    out = tmp_path / "r.ndjson"
    code, said = run(
        *("--url", f"http://127.0.0.1:{port}", "--model", "m", "--rps", "20", "--seconds", "0.3"),
        *("--arrivals", "constant", "--out", str(out)),
    )
    assert code == 1
    assert "good: 0 of 6" in said
    assert len([json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]) == 6


@pytest.mark.parametrize(
    "wrong",
    [
        ("--arrivals", "bursty"),
        ("--rps", "0"),
        ("--rps", "9999", "--seconds", "9999"),
        ("--out", "/proc/no/such/place"),
        ("--long-share", "1.5"),
        ("--load", "no_such_class"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(wrong: tuple[str, ...]) -> None:
    code, said = run("--url", "http://127.0.0.1:1", "--model", "m", *wrong)
    assert code == 2
    assert "Invalid value" in said


def test_a_class_of_the_scenario_file_replaces_the_sizes(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    out = tmp_path / "r.ndjson"
    code, _ = run(
        *("--url", f"http://127.0.0.1:{port}", "--model", "m", "--rps", "20", "--seconds", "0.5"),
        *("--load", "rag_multidoc", "--bytes-per-token", "4", "--out", str(out)),
    )
    assert code == 1
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert records
    for record in records:
        assert 1000 < record["prompt_tokens"] < 8000
        assert record["prompt_bytes"] == 4 * record["prompt_tokens"]
        assert record["max_tokens"] == 128
