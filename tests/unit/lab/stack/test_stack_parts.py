"""The parts of the process supervision that need no process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.stack.guard import remaining
from headrace_lab.stack.launch import leaves
from headrace_lab.stack.ports import ephemeral_floor
from headrace_lab.stack.program import Exit, StackError, console_script, tail
from headrace_lab.stack.stack import StopReport


def test_the_guard_keeps_what_was_not_taken_off() -> None:
    assert remaining(["+100\n", "+200\n", "-100\n"]) == {200}


@pytest.mark.parametrize("line", ["", "+\n", "+0\n", "+1\n", "+-5\n", "+12x\n", "12\n", "kill 12\n", "+²\n"])
def test_the_guard_never_takes_a_wrong_line_for_a_group(line: str) -> None:
    """Group 0 is the guard's own and 1 is init's: killing either would be a disaster."""
    assert remaining([line]) == set()


@given(st.lists(st.text(max_size=12)))
def test_the_guard_bears_any_text(lines: list[str]) -> None:
    assert all(group > 1 for group in remaining(lines))


@pytest.mark.parametrize(("text", "floor"), [("32768\t60999\n", 32768), ("15000 60000", 15000), ("", 32768)])
def test_the_range_of_outgoing_connections(text: str, floor: int) -> None:
    assert ephemeral_floor(text) == floor


def test_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert "cannot be read" in tail(log)
    log.write_bytes(b"")
    assert "empty" in tail(log)
    log.write_bytes(b"".join(b"line %d\n\n" % i for i in range(5000)) + b"\xff\xfe last\n")
    lines = tail(log, count=3).splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("last")
    assert lines[0] == "    line 4998"


def test_a_missing_program_is_said_with_the_way_out() -> None:
    with pytest.raises(StackError, match="make setup"):
        console_script(f"no-such-program-{random.randrange(10**6)}")


def test_errors_come_out_of_nested_groups() -> None:
    inner = ExceptionGroup("b", [ValueError("1"), OSError("2")])
    assert [str(e) for e in leaves(ExceptionGroup("a", [inner, StackError("3")]))] == ["1", "2", "3"]


def test_the_slowest_end_counts_only_those_asked_for() -> None:
    exits = (Exit("a", 0, 0.5), Exit("b", 0, 9.0), Exit("c", -9, None, planned=True))
    report = StopReport(exits, ("x (pid 1)",), (8000, 8001))
    assert report.slowest(["a", "c"]) == 0.5
    assert report.slowest([]) == 0.0
    assert report.leftovers == 3
