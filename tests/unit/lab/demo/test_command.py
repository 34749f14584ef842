"""The command that a result file names."""

from __future__ import annotations

from headrace_lab.demo.result import command


def test_a_command_names_no_place_that_nobody_else_has() -> None:
    words = ["/somewhere/bin/headrace-lab", "live", "burst", "--json", "/tmp/x/burst.json", "--rps", "2"]
    assert command(words) == "headrace-lab live burst --json burst.json --rps 2"
    assert command(["headrace-lab", "sim", "--json", "out/a.json"]) == "headrace-lab sim --json out/a.json"
