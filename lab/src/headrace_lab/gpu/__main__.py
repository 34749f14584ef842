"""`python -m headrace_lab.gpu`: a DCGM exporter as a program of its own."""

from __future__ import annotations

import typer

from headrace_lab.gpu.commands import exporter

if __name__ == "__main__":
    typer.run(exporter)
