"""`headrace-lab matrix`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from headrace_lab.scenarios import Catalogue

Fleet = Literal["homogeneous", "perturbed", "heterogeneous"]


def matrix(
    out: Annotated[Path, typer.Option(help="Directory for the CSV, the JSON and the pictures.")],
    fleet: Annotated[Fleet, typer.Option(help="The fleet.")] = "perturbed",
    quick: Annotated[bool, typer.Option("--quick", help="Three loads, one tier, one repetition.")] = False,
    traces: Annotated[bool, typer.Option("--traces", help="The public traces as well.")] = False,
    loads: Annotated[
        str | None, typer.Option(help="Only these load classes or traces, with commas between.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the loads and all that is left to chance.", min=0)] = 1,
) -> None:
    """Find the sustainable rate of each arm for every load class and SLO tier, in simulation.

    Two processes work on it; what an interrupted run left in --out is taken over. A ratio with ~
    behind it is not sure: the bootstrap intervals of the arm's and of round-robin's rates overlap.
    Then all arms run at one rate below saturation, for their P99; --quick leaves that out.

    Exit status: 0 it ran; 2 wrong options; 130 after Ctrl-C.
    """
    from headrace_lab.matrix.run import loads_of
    from headrace_lab.matrix.run import matrix as run
    from headrace_lab.scenarios import packaged
    from headrace_lab.tables import new_console
    from headrace_shared.clock import SystemClock

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{out}: {error.strerror or error}", param_hint="--out") from error
    catalogue = packaged()
    chosen = loads_of(catalogue, quick, traces) if loads is None else named(loads, catalogue)
    run(catalogue, fleet, chosen, quick, seed, out, new_console(), SystemClock())


def named(loads: str, catalogue: Catalogue) -> tuple[str, ...]:
    """The loads of an option, each once. Raises BadParameter for one that the scenario file lacks."""
    found = tuple(dict.fromkeys(each.strip() for each in loads.split(",") if each.strip()))
    try:
        for each in found:
            catalogue.load(each)
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="--loads") from error
    if not found:
        raise typer.BadParameter("name at least one load", param_hint="--loads")
    return found
