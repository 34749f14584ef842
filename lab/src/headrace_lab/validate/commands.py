"""`headrace-lab validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace_lab.demo.commands import check_places

RATES = {"calibration": None, "homogeneous": 8.0, "heterogeneous": 8.0, "perturbed": 6.0}
"""Scenarios, and rates below what any arm sustains; None = the scenario file's."""
QUICK = ("homogeneous", "heterogeneous")
QUICK_SECONDS = 30.0


def validate(
    quick: Annotated[bool, typer.Option("--quick", help="Two scenarios, one arm, 30 s each.")] = False,
    arms: Annotated[str, typer.Option(help="Arms to compare, with commas between.")] = "rr,weights",
    seconds: Annotated[
        float | None, typer.Option(help="Length of each live load; default: the file's.", min=10, max=3600)
    ] = None,
    rps: Annotated[
        float | None, typer.Option(help="Requests per second, for all scenarios.", min=0.1, max=200)
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the loads.", min=0)] = 1,
    json: Annotated[
        Path | None, typer.Option(help="Write the result here, and the live results beside it.")
    ] = None,
) -> None:
    """Run four scenarios live and in simulation, and say how far their first tokens agree.

    Same scenario, load, seed and arm both ways, without a WAN. P50 and P95 TTFT agree within 15 %, or
    the report says what was measured that explains it: lateness of the machine, luck, the path.

    Exit status: 0 the live measurements can be trusted; 1 one cannot, or a program failed; 2 wrong
    options; 130 after Ctrl-C.
    """
    from headrace_lab.live.ask import AskError, Options, look_up
    from headrace_lab.scenarios import packaged
    from headrace_lab.stack.launch import live as launch
    from headrace_lab.tables import new_console
    from headrace_lab.validate.run import Job
    from headrace_lab.validate.run import validate as run

    chosen = tuple(part.strip() for part in arms.split(",") if part.strip())
    asks = []
    for name in QUICK if quick else RATES:
        options = Options(
            name=name,
            arms=chosen[:1] if quick else chosen,
            rps=rps or RATES[name],
            seconds=seconds or (QUICK_SECONDS if quick else None),
            seed=seed,
        )
        try:
            ask = look_up(options, packaged())
            look_up(options, packaged(), "sim")
        except AskError as error:
            raise typer.BadParameter(str(error)) from error
        asks.append(ask)
    check_places(json, None, 0)
    console = new_console()
    job = Job(tuple(asks), json, quick)
    raise typer.Exit(launch(lambda: run(job, console), console))
