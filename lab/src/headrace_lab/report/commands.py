"""`headrace-lab report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Directories with result files: live, sim, matrix, validate, make bench.",
            exists=True,
            file_okay=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where report.html and report.md go; default: the first directory.")
    ] = None,
    readme: Annotated[
        bool, typer.Option("--readme", help="Print the short Markdown table, and write nothing.")
    ] = False,
) -> None:
    """Put all results of some directories beside the published figures, on one page.

    Writes report.html, which holds its pictures and needs nothing else, and report.md. A figure that no
    result has is listed as missing, with the command that makes it.

    Exit status: 0 it is written; 1 there is no result, or a page could not be written; 2 wrong options.
    """
    from headrace_lab.report.run import readme as short
    from headrace_lab.report.run import write

    if readme:
        typer.echo(short(directories))
        return
    try:
        made, results = write(directories, out or directories[0])
    except OSError as error:
        typer.echo(f"the report could not be written: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{len(results)} results; written: {', '.join(str(path) for path in made)}")
    if not results:
        typer.echo("no result was found; the report lists the commands that make them", err=True)
        raise typer.Exit(1)
