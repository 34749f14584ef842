"""What the output goes to decides on width, colour and drawing."""

from __future__ import annotations

import io

import pytest

from headrace_controller.operator_cli.terminal import Terminal, terminal, warn


class Stream(io.StringIO):
    """A stdout that is a terminal, or none."""

    def __init__(self, tty: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._tty, self._encoding = tty, encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


XTERM = {"TERM": "xterm-256color", "COLUMNS": "100"}


@pytest.mark.parametrize(
    ("tty", "environ", "wanted"),
    [
        (True, XTERM, Terminal(100, colour=True, interactive=True)),
        (True, XTERM | {"NO_COLOR": "1"}, Terminal(100, colour=False, interactive=True)),
        (True, XTERM | {"NO_COLOR": ""}, Terminal(100, colour=True, interactive=True)),
        (True, {"TERM": "dumb"}, Terminal(80, colour=False, interactive=False)),
        (True, {}, Terminal(80)),
        (True, {"TERM": "xterm", "COLUMNS": "7"}, Terminal(40, colour=True, interactive=True)),
        (True, {"TERM": "xterm", "COLUMNS": "many"}, Terminal(80, colour=True, interactive=True)),
        (False, XTERM, Terminal()),
        (False, XTERM | {"FORCE_COLOR": "1"}, Terminal()),
    ],
)
def test_what_stdout_is(tty: bool, environ: dict[str, str], wanted: Terminal) -> None:
    assert terminal(Stream(tty), environ) == wanted


@pytest.mark.parametrize(("encoding", "unicode"), [("utf-8", True), ("UTF8", True), ("ascii", False)])
def test_ascii_is_kept_to_where_there_is_no_more(encoding: str, unicode: bool) -> None:
    assert terminal(Stream(True, encoding), XTERM).unicode is unicode


def test_a_style_is_nothing_where_there_is_no_colour() -> None:
    assert Terminal().styled("x", "red") == "x"
    assert Terminal(colour=True).styled("x", "") == "x"
    assert Terminal(colour=True).styled("x", "red") == "\x1b[31mx\x1b[0m"


def test_a_warning_drives_no_terminal_and_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    warn("two things:\n\x1b[31mred")
    assert capsys.readouterr().err == "headrace: two things:\n\ufffd[31mred\n"
