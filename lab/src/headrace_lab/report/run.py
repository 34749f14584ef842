"""Read results, write the two pages, or print the short table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from headrace_lab.report import html, markdown
from headrace_lab.report.page import Picture, page, readme_table
from headrace_lab.report.results import Result, load

HTML = "report.html"
MARKDOWN = "report.md"
PICTURE = "report.{}.svg"


def write(directories: Sequence[Path], out: Path) -> tuple[list[Path], list[Result]]:
    """Write both pages and the Markdown page's pictures into `out`; the pages' paths, and the results that
    they are from. Pictures of an earlier report go. Raises OSError."""
    results, problems = load(directories)
    sections = page(results, problems, str(directories[0]))
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(PICTURE.format("*")):
        old.unlink()
    files = {}
    for each in (block for section in sections for block in section.blocks if isinstance(block, Picture)):
        files[each.title] = PICTURE.format(_slug(each.title))
        (out / files[each.title]).write_text(each.svg, encoding="utf-8")
    pages = {HTML: html.render(sections), MARKDOWN: markdown.render(sections, files)}
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in pages], results


def _slug(title: str) -> str:
    """A title as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:80]


def readme(directories: Sequence[Path]) -> str:
    """The short table in Markdown."""
    results, _ = load(directories)
    return markdown.table(readme_table(results, str(directories[0])))
