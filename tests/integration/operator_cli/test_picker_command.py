"""`headrace picker` and `headrace explain --request`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from headrace_controller.operator_cli import program
from tests.integration.operator_cli.admin_fake import Admin, serving

PATH = "/api/v1/picker"
STATUS: dict[str, Any] = {
    "enabled": True,
    "on": True,
    "naming": True,
    "said": "",
    "open_requests": 7,
    "lost_requests": 2,
    "picks": {"named": 90, "left": 1},
    "prediction_error": 1.25,
    "guess_error": None,
    "slow_share": 0.0,
    "cache_found": 0.875,
}
CANDIDATE = {
    "cell": "berlin/c1",
    "predicted_s": 0.25,
    "held_up_s": 0.0125,
    "cost_s": 0.525,
    "penalty": 2.0,
    "rtt_s": 0.01,
    "work_tokens": 1234.0,
    "cached_tokens": 512.0,
    "usable": True,
    "named": 1,
}
PICK: dict[str, Any] = {
    "request": "a/b",
    "gateway": "gw-1",
    "model": "m",
    "age_s": 3.0,
    "outcome": "named",
    "prompt_tokens": 1000,
    "session": "s-1",
    "candidates": [CANDIDATE, CANDIDATE | {"cell": "c2", "cost_s": None, "usable": False, "named": 0}],
    "candidates_total": 40,
    "served_by": "berlin/c1",
    "as_named": True,
    "predicted_s": 0.25,
    "observed_s": 0.2612,
}


@pytest.fixture
def admin() -> Iterator[Admin]:
    with serving() as started:
        started.answer(PATH, STATUS)
        started.answer(PATH, {"subject": "", "accepted": True, "kept": True}, method="POST")
        started.answer("/api/v1/requests/a%2Fb/pick", PICK)
        yield started


def headrace(admin: Admin, *arguments: str) -> Result:
    return CliRunner().invoke(program.app, [*arguments, "--url", admin.url])


def test_status_says_how_it_does(admin: Admin) -> None:
    for arguments in (("picker",), ("picker", "status")):
        ended = headrace(admin, *arguments)
        assert ended.exit_code == 0, ended.stderr
        lines = ended.stdout.splitlines()
        assert lines[:3] == [
            "names cells",
            "7 requests wait for their first token; 2 were never answered",
            "predicted times are off by 1.25 times, a plain guess by -",
        ]
        assert lines[3] == "88% of what was expected in prefix caches was found there"
        assert [line.split() for line in lines[-2:]] == [["left", "1"], ["named", "90"]]
    admin.answer(PATH, STATUS | {"naming": False, "said": "stands aside: slow", "picks": {}})
    assert headrace(admin, "picker").stdout.startswith("names no cell: stands aside: slow\n")
    assert json.loads(headrace(admin, "picker", "--json").stdout)["said"] == "stands aside: slow"


def test_it_is_switched_off_and_on(admin: Admin) -> None:
    ended = headrace(admin, "picker", "off", "--cause", "to compare")
    assert (ended.exit_code, ended.stdout) == (0, "picker off\n")
    assert headrace(admin, "picker", "on").stdout == "picker on\n"
    admin.answer(PATH, {"subject": "", "accepted": True, "kept": False}, method="POST")
    assert "would forget it" in headrace(admin, "picker", "off").stderr
    admin.answer(PATH, {"error": "there is no picker; set picker.enabled"}, method="POST", status=409)
    ended = headrace(admin, "picker", "on")
    assert (ended.exit_code, "picker.enabled" in ended.stderr) == (1, True)


def test_a_pick_is_explained(admin: Admin) -> None:
    ended = headrace(admin, "explain", "--request", "a/b")
    assert ended.exit_code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0] == "a/b at gw-1, 3.0 s ago"
    assert lines[1] == "m, about 1000 tokens, session s-1: named"
    rows = [line.split() for line in lines[3:5]]
    assert rows[0] == [
        "1",
        "berlin/c1",
        "0.5250",
        "s",
        "0.2500",
        "s",
        "0.0125",
        "s",
        "0.0100",
        "s",
        "1234",
        "tokens",
        "512",
        "tokens",
        "2.00",
        "yes",
    ]
    assert (rows[1][:3], rows[1][-1]) == (["-", "c2", "-"], "no")
    assert lines[5] == "and 38 that cost more"
    assert lines[6] == "served by berlin/c1, first token after 0.2612 s (predicted 0.2500 s)"
    assert json.loads(headrace(admin, "explain", "--request", "a/b", "--json").stdout) == PICK


@pytest.mark.parametrize("arguments", [(), ("c1", "--request", "r")])
def test_a_cell_or_a_request_is_explained_and_not_both(admin: Admin, arguments: tuple[str, ...]) -> None:
    ended = headrace(admin, "explain", *arguments)
    assert ended.exit_code == 2
    assert "--request" in ended.stderr
