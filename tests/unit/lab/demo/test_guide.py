"""What a stranger is told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from headrace_lab.demo.guide import beside, what_next, what_to_check, where_to_look
from tests.unit.lab.demo.test_scene import FLEET

ROOT = Path(__file__).resolve().parents[4]


def test_the_addresses_are_those_of_the_run() -> None:
    said = where_to_look(FLEET, 40)
    assert said[0] == "for the next 40 s:"
    text = "\n".join(said)
    assert "http://127.0.0.1:18002/\n" in text
    assert "headrace top --url http://127.0.0.1:18002" in text
    assert "headrace explain a --url" in text


def test_the_request_can_be_pasted() -> None:
    request = where_to_look(FLEET, 40)[-1]
    words = shlex.split(request[request.index("curl") :])
    assert words[1] == "http://127.0.0.1:10000/v1/completions"
    assert json.loads(words[words.index("-d") + 1])["model"] == "m"


@pytest.mark.parametrize(
    ("python", "here", "wanted"),
    [
        ("/src/hr/.venv/bin/python", "/src/hr", ".venv/bin/headrace"),
        ("/src/hr/.venv/bin/python", "/home/me", "/src/hr/.venv/bin/headrace"),
        ("/opt/a b/bin/python", "/", "'opt/a b/bin/headrace'"),
    ],
)
def test_the_program_is_named_as_it_can_be_called(python: str, here: str, wanted: str) -> None:
    assert beside("headrace", python, here) == wanted


def test_the_pages_that_come_next_exist() -> None:
    pages = [word for line in what_next(40) for word in line.split() if word.startswith("docs/")]
    assert len(pages) == 3
    for page in pages:
        assert (ROOT / page).is_file(), page


def test_a_run_that_failed_says_where_its_logs_are() -> None:
    assert any("/tmp/headrace-demo-x" in line for line in what_to_check("/tmp/headrace-demo-x"))
