"""Prometheus' own judgement of the rules and the example configuration."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.monitoring import PROMETHEUS, ROOT, RULE_TESTS, RULES

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="needs the package prometheus"),
]


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Its exit status and all that it said."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_rules_and_the_scrape_configs_are_taken() -> None:
    code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert code == 0, said
    for path in (PROMETHEUS / "prometheus.yml", ROOT / "deploy" / "compose" / "prometheus.yml"):
        code, said = promtool("check", "config", path)
        assert code == 0, said


def test_the_rules_do_what_their_tests_say() -> None:
    code, said = promtool("test", "rules", *RULE_TESTS)
    assert code == 0, said
    assert said.count("SUCCESS") == len(RULE_TESTS) > 0


def test_a_rule_that_is_wrong_is_found(tmp_path: Path) -> None:
    shutil.copytree(PROMETHEUS / "rules", tmp_path / "rules")
    shutil.copytree(PROMETHEUS / "tests", tmp_path / "tests")
    file = tmp_path / "rules" / "alerts.yml"
    text = file.read_text(encoding="utf-8")
    file.write_text(
        text.replace("headrace_cell_state == 4\n", "headrace_cell_state == 5\n"), encoding="utf-8"
    )
    code, said = promtool("test", "rules", tmp_path / "tests" / "cells.yml")
    assert code != 0
    assert "HeadraceCellFailed" in said
