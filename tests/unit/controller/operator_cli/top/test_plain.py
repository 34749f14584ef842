"""`top` as lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace_controller.operator_cli.terminal import Terminal
from headrace_controller.operator_cli.top import plain
from headrace_controller.operator_cli.top.plain import Wanted, run, text_lines
from tests.support import fleet_pages as pages
from tests.support.clock import FakeClock
from tests.unit.controller.operator_cli.top.fake_source import FakeSource

CELLS = (pages.cell("b1", pressure=0.9), pages.failed("a1", "amsterdam"), pages.cell("b2", pressure=0.2))


def lines(to: Terminal, **wanted: Any) -> list[str]:
    return list(text_lines(FakeSource(CELLS).look(), Wanted(**wanted), to))


def test_a_pipe_gets_whole_lines_and_no_control_codes() -> None:
    made = lines(Terminal())
    assert made[0] == "region eu-1: weights are published; 2 of 3 cells READY"
    assert made[1].split()[:3] == ["site", "cell", "state"]
    assert [line.split()[1] for line in made[2:]] == ["a1", "b1", "b2"]
    assert "".join(made).isprintable()


def test_80_columns_are_kept_to() -> None:
    assert max(map(len, lines(Terminal(width=80)))) <= 80


def test_colour_is_only_where_it_is_wanted() -> None:
    assert any("\x1b[32mREADY" in line for line in lines(Terminal(width=80, colour=True)))


def test_rows_words_site_and_order_choose_the_cells() -> None:
    assert lines(Terminal(), key="pressure", rows=1)[2].split()[1] == "b1"
    assert lines(Terminal(), rows=1)[-1] == "2 more"
    assert [line.split()[1] for line in lines(Terminal(), site="berlin", words="!b2")[2:]] == ["b1"]
    assert lines(Terminal(), site="berlin", rows=1)[-1] == "1 more"


def test_json_is_an_object_a_look(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain.time, "sleep", lambda _: None)
    run(FakeSource(CELLS), FakeClock(), Wanted(as_json=True, rounds=2))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert [cell["id"] for cell in first["cells"]] == ["a1", "b1", "b2"]
    assert first["cells"][0]["pressure"] is None
    assert first["at"] == second["at"] > 0


def test_a_controller_that_goes_away_is_said_once_and_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, slept = FakeSource(CELLS), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        source.fails = "connection refused" if len(slept) in (1, 2) else ""

    monkeypatch.setattr(plain.time, "sleep", sleep)
    run(source, FakeClock(), Wanted(rounds=4, interval_s=0.5))
    told = capsys.readouterr()
    assert told.out.count("region eu-1") == 2
    assert told.err == "headrace: connection refused; trying again\n"
    assert slept == [0.5] * 3


def test_a_controller_that_is_not_there_at_first_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    source = FakeSource(CELLS)
    source.fails = "connection refused"
    with pytest.raises(SystemExit) as ended:
        run(source, FakeClock(), Wanted())
    assert ended.value.code == 3
    assert capsys.readouterr().err == "headrace: connection refused\n"


def test_a_controller_that_never_comes_back_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeSource(CELLS)

    def sleep(_: float) -> None:
        source.fails = "connection refused"

    monkeypatch.setattr(plain.time, "sleep", sleep)
    with pytest.raises(SystemExit) as ended:
        run(source, FakeClock(), Wanted())
    assert ended.value.code == 3
