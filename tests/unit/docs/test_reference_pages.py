"""The reference pages are what the programs print."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headrace_agent.cli import app as agent
from headrace_controller.cli import app as controller

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(("page", "app"), [("agent", agent), ("controller", controller)])
def test_the_page_is_what_the_program_prints(page: str, app: typer.Typer) -> None:
    printed = CliRunner().invoke(app, ["config", "reference"])
    assert printed.exit_code == 0
    expected = (DOCS / f"reference-{page}.md").read_text(encoding="utf-8")
    assert printed.output == expected, "run make docs-pages and commit"
