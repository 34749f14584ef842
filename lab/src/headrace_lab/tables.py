"""Tables and consoles as all commands of the lab print them."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

PLAIN_WIDTH = 150


def new_console() -> Console:
    """A console on stdout; where that is no terminal, wide enough for every table."""
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)


def new_table(title: str = "", *, left: Iterable[str] = (), right: Iterable[str] = ()) -> Table:
    """A light table: columns of text to the left, columns of figures to the right."""
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table
