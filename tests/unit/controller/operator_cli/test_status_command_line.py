"""`headrace status` reads a plain command line itself, and leaves every other to the whole program."""

from __future__ import annotations

import pytest

from headrace_controller.operator_cli.status import Asked, read

URL = "http://10.0.0.1:18002"


@pytest.mark.parametrize(
    ("arguments", "environ", "wanted"),
    [
        ([], {}, Asked()),
        (["--json", "--check"], {}, Asked(as_json=True, check=True)),
        (["--url", f"{URL}/", "--token=s3cret", "--ca", "ca.pem"], {}, Asked(URL, "s3cret", "ca.pem")),
        ([], {"HEADRACE_URL": URL, "HEADRACE_TOKEN": "t", "HEADRACE_CA": "c"}, Asked(URL, "t", "c")),
        (["--url", URL], {"HEADRACE_URL": "http://elsewhere:1"}, Asked(URL)),
        ([], {"HEADRACE_URL": "", "HEADRACE_TOKEN": ""}, Asked()),
    ],
)
def test_a_plain_command_line_is_read(arguments: list[str], environ: dict[str, str], wanted: Asked) -> None:
    assert read(arguments, environ) == wanted


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--jsn"],
        ["--url"],
        ["--url", "nonsense"],
        ["more"],
        ["--json=1"],
        ["--token", "a\nb"],
        ["--"],
    ],
)
def test_what_needs_a_word_is_left_to_the_whole_program(arguments: list[str]) -> None:
    assert read(arguments, {}) is None


def test_a_variable_that_is_no_address_is_left_too() -> None:
    assert read([], {"HEADRACE_URL": "nonsense"}) is None
