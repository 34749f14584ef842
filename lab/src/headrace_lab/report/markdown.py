"""The report as Markdown, with its pictures in files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace_lab.report.page import Block, Listed, Picture, Section, Table

TITLE = "# Headrace: the lab's report"


def render(sections: Sequence[Section], pictures: Mapping[str, str]) -> str:
    """The page; folded sections are left out, for they stand in the result files. `pictures` are the names
    of the files that hold them, by title."""
    parts = [TITLE]
    for section in sections:
        if not section.folded:
            parts.append(f"## {section.title}")
            parts += [_block(block, pictures) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, pictures: Mapping[str, str]) -> str:
    if isinstance(block, Table):
        return table(block)
    if isinstance(block, Listed):
        return "\n".join(f"- {_clean(item)}" for item in block.items)
    if isinstance(block, Picture):
        return f"![{_clean(block.title)}]({pictures[block.title]})"
    return block


def table(block: Table) -> str:
    """A table; commands as code."""
    head = [f"| {' | '.join(block.head)} |", f"| {' | '.join('---' for _ in block.head)} |"]
    body = [f"| {' | '.join(_cell(block, at, text) for at, text in enumerate(row))} |" for row in block.body]
    return "\n".join([*head, *body])


def _cell(block: Table, at: int, text: str) -> str:
    cleaned = _clean(text)
    return f"`{cleaned}`" if at in block.code and cleaned else cleaned


def _clean(text: str) -> str:
    """No line break, and no bar that would end a cell."""
    return " ".join(text.split()).replace("|", "\\|")
