"""`headrace-lab`: simulated cells, load, and scenarios that run the real programs."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace_lab import __version__
from headrace_lab.cell.commands import cell
from headrace_lab.demo.commands import demo
from headrace_lab.gpu.commands import exporter
from headrace_lab.live.commands import live
from headrace_lab.load.commands import load
from headrace_lab.matrix.commands import matrix
from headrace_lab.real.commands import demo_real
from headrace_lab.report.commands import report
from headrace_lab.sim.commands import sim
from headrace_lab.validate.commands import validate
from headrace_lab.wan.commands import relay, wan

app = typer.Typer(
    name="headrace-lab",
    help="The lab: simulated cells and exporters, an open-loop load driver, a WAN emulator, and "
    "demonstrations that run the real agent, controller and Envoy on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"headrace-lab {__version__}")
        raise typer.Exit


app.command()(demo)
app.command()(demo_real)
app.command()(load)
app.command()(live)
app.command()(sim)
app.command()(matrix)
app.command()(validate)
app.command()(report)
app.command()(cell)
app.command("dcgm")(exporter)
app.command()(wan)
app.command()(relay)


def main() -> None:
    """Entry point of the console script."""
    app()
