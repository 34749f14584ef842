"""`headrace-lab demo-real`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace_lab.demo.commands import check_places
from headrace_lab.real.figures import LONG_LEAST

# Half of the requests are too long, give or take what chance brings.
MIN_REQUESTS = round(LONG_LEAST * 2 * 1.15)


def demo_real(
    seconds: Annotated[float, typer.Option(help="How long load is sent.", min=40, max=3600)] = 60,
    rps: Annotated[float, typer.Option(help="Requests per second; half are too long.", min=1, max=50)] = 6,
    seed: Annotated[int, typer.Option(help="Fixes the load.", min=0)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write the result here, raw records beside it.")] = None,
    keep_logs: Annotated[
        Path | None, typer.Option(help="Keep settings and logs of the programs in this directory.")
    ] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(help="Where the engines' environment is kept; by default in the user's cache."),
    ] = None,
) -> None:
    """Run the real agent, controller and Envoy over three real vLLM engines on this CPU.

    One engine takes 1,024 tokens, two take 4,096. Half of the prompts are too long for the small
    one: it answers them with HTTP 400, at once, while its health stays good. The run shows that
    the agents see it and that the small engine's weight, and so its share, falls. These 400s are
    counted apart as refused; any other failure counts against the run.

    The first call builds the engines' environment (vLLM and torch for the CPU: some minutes and
    gigabytes) outside the source tree and keeps it. The engines need about 6 GB of memory.

    Exit status: 0 it worked; 1 it did not (the last line says which checks failed); 2 wrong
    options; 130 after Ctrl-C.
    """
    from headrace_lab.real.environment import default_root
    from headrace_lab.real.run import Plan
    from headrace_lab.real.run import demo_real as run
    from headrace_lab.stack.launch import live
    from headrace_lab.tables import new_console

    if seconds * rps < MIN_REQUESTS:
        raise typer.BadParameter(
            f"{seconds:g} s at {rps:g} requests/s send about {seconds * rps / 2:.0f} too-long prompts; "
            f"the run needs {LONG_LEAST}: give at least {MIN_REQUESTS / rps:.0f} seconds at this rate",
            param_hint="--seconds",
        )
    check_places(json, keep_logs, 0)
    plan = Plan(seconds, rps, seed, (cache_dir or default_root()).resolve(), json, keep_logs)
    console = new_console()
    raise typer.Exit(live(lambda: run(plan, console), console))
