"""Read results, write the two pages, or print the short table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace_lab.report import html, markdown
from headrace_lab.report.page import page, readme_table
from headrace_lab.report.results import Result, load

HTML = "report.html"
MARKDOWN = "report.md"


def write(directories: Sequence[Path], out: Path) -> tuple[list[Path], list[Result]]:
    """Write both pages into `out`; their paths, and the results that they are from. Raises OSError."""
    results, problems = load(directories)
    sections = page(results, problems, str(directories[0]))
    out.mkdir(parents=True, exist_ok=True)
    made = []
    for name, render in ((HTML, html.render), (MARKDOWN, markdown.render)):
        path = out / name
        path.write_text(render(sections), encoding="utf-8")
        made.append(path)
    return made, results


def readme(directories: Sequence[Path]) -> str:
    """The short table in Markdown."""
    results, _ = load(directories)
    return markdown.table(readme_table(results, str(directories[0])))
