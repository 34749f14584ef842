"""`python -m headrace_lab.cell`: a cell as a program of its own."""

from __future__ import annotations

import typer

from headrace_lab.cell.commands import cell

if __name__ == "__main__":
    typer.run(cell)
