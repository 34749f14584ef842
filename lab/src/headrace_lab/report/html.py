"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headrace_lab.report.page import Block, Listed, Picture, Section, Table

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.87rem; margin: 0.8rem 0; }
th, td { border-bottom: 1px solid #8886; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
th { white-space: nowrap; } code { font-size: 0.85em; } figure { margin: 1.2rem 0; }
svg { max-width: 100%; height: auto; } summary { cursor: pointer; margin: 0.4rem 0; }
"""
TITLE = "Headrace: the lab's report"


def render(sections: Sequence[Section]) -> str:
    """The whole page."""
    body = "\n".join(_section(section) for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{TITLE}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{TITLE}</h1>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    title = escape(section.title)
    if section.folded:
        return f"<details>\n<summary>{title}</summary>\n{blocks}\n</details>"
    return f"<section>\n<h2>{title}</h2>\n{blocks}\n</section>"


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Listed):
        return "<ul>\n" + "\n".join(f"<li>{escape(item)}</li>" for item in block.items) + "\n</ul>"
    if isinstance(block, Picture):
        return f"<figure>\n{block.svg}</figure>"
    return f"<p>{escape(block)}</p>"


def _table(block: Table) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in block.head)
    body = "\n".join(
        "<tr>" + "".join(_cell(block, at, text) for at, text in enumerate(row)) + "</tr>"
        for row in block.body
    )
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'


def _cell(block: Table, at: int, text: str) -> str:
    shown = escape(text)
    return f"<td><code>{shown}</code></td>" if at in block.code and text else f"<td>{shown}</td>"
