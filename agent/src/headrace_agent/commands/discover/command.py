"""`headrace-agent discover`: the options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """\
\b
Try it:
  headrace-agent discover --output agent.yaml
  headrace-agent discover --site berlin --controller 10.0.0.5:18000 --output agent.yaml
  headrace-agent discover --ports 8000-8007 --json
\b
Run it as root, or as the engines' user: whose a port is, and which GPUs its processes use, is hidden from
others. Site and controllers are left to fill in unless --site and --controller give them; what could not be
told says so in a comment.
\b
Each port that may be an engine's is asked a few GETs, four ports at a time, on this host's own addresses.
Ports of databases and the like, those that the kernel chose itself, and those of proxies are let alone.
\b
Exit codes: 0 a config is proposed; 1 no engine was found; 2 wrong usage, or the file cannot be written.
"""


def discover(
    ports: Annotated[
        str, typer.Option(metavar="LIST", help="Ask these ports and no others, as in 8000,8001 or 8000-8007.")
    ] = "",
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="The site of this host, as in berlin.")
    ] = None,
    controller: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A controller's listen.telemetry, as in 10.0.0.5:18000; may be given several times.",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the config here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that was found as JSON.")] = False,
) -> None:
    """Find the GPUs and engines of this host, and propose a config for them."""
    from headrace_agent.commands.discover import run

    run.discover(ports, site, controller or (), output, force, as_json)
