"""`python -m headrace_lab.wan`: the emulator as a program of its own."""

from __future__ import annotations

import typer

from headrace_lab.wan.commands import wan

if __name__ == "__main__":
    typer.run(wan)
