"""`headrace-agent check`: the options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """\
\b
Try it:
  headrace-agent check --config agent.yaml
  headrace-agent check --config agent.yaml --gateway 10.0.0.5:443 --wait 10
  headrace-agent check                        # what `discover` finds on this host
\b
It burdens nobody: each engine's page is read once a second, nothing is registered with a controller, and
no completion is asked without --warm-up. An agent that runs already is not disturbed.
\b
An exporter that collects seldom is known by figures that stand still; --wait 70 tells how seldom.
\b
Exit codes: 0 good, or warnings only; 1 errors: something does not work; 2 the config cannot be used.
"""


def check(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The agent's config file; without it, what is found here."),
    ] = None,
    gateway: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]", help="A gateway to measure the path to; may be given several times."
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=1, max=300, help="How long to look at the sources, in seconds.")
    ] = 4.0,
    warm_up: Annotated[
        bool,
        typer.Option("--warm-up", help="Ask each engine that has served nothing yet for one completion."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Try every source of a config for real, show the ten signals, and say how to mend what is wrong."""
    from headrace_agent.commands.check import run

    run.check_config(config, gateway or (), wait, warm_up, as_json)
