"""`headrace-lab live`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace_lab.demo.commands import check_places


def live(
    name: Annotated[str, typer.Argument(help="The scenario, as the scenario file names it.")],
    kind: Annotated[str, typer.Option(help="With failover: kill, hang, node, site or loading.")] = "",
    variant: Annotated[str, typer.Option(help="A variant of the scenario.")] = "",
    arms: Annotated[str, typer.Option(help="Arms to run, with commas between; default: the file's.")] = "",
    load: Annotated[str, typer.Option(help="A load class or trace; default: the file's.")] = "",
    network: Annotated[
        str,
        typer.Option(
            help="A network to put before the sites (with jitter several, with commas between): real "
            "packets as root, at the socket otherwise; default: jitter's own, and none for the others."
        ),
    ] = "",
    rps: Annotated[float | None, typer.Option(help="Requests per second.", min=0.01, max=1000)] = None,
    seconds: Annotated[float | None, typer.Option(help="Length of each arm's load.", min=5, max=7200)] = None,
    seed: Annotated[int, typer.Option(help="Fixes the load and who is struck.", min=0)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write the result here, raw records beside it.")] = None,
    keep_logs: Annotated[
        Path | None, typer.Option(help="Keep settings and logs of the programs in this directory.")
    ] = None,
) -> None:
    """Run a scenario live: real agents, controller and Envoy over simulated cells, arm after arm.

    Each arm gets fresh programs and the same load. Prints each arm's latencies and the scenario's
    figures; writes them as JSON with the raw records, fault times and metrics pages beside it.

    Exit status: 0 the measurement can be trusted; 1 it cannot, or a program failed; 2 wrong
    options; 130 after Ctrl-C.
    """
    from headrace_lab.live.ask import AskError, Options, look_up
    from headrace_lab.live.run import live as run
    from headrace_lab.scenarios import packaged
    from headrace_lab.stack.launch import live as launch
    from headrace_lab.tables import new_console

    options = Options(
        name, kind, variant, _parts(arms), load, _parts(network), rps, seconds, seed, json, keep_logs
    )
    try:
        ask = look_up(options, packaged())
    except AskError as error:
        raise typer.BadParameter(str(error)) from error
    check_places(json, keep_logs, 0)
    console = new_console()
    raise typer.Exit(launch(lambda: run(ask, console), console))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
