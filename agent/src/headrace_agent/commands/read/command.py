"""`headrace-agent read engine` and `headrace-agent read dcgm`: the options."""

from __future__ import annotations

from typing import Annotated

import typer

EPILOG = """\
\b
PAGE is a file, an http(s) URL, or - for stdin.
\b
Try it:
  headrace-agent read engine http://127.0.0.1:8000/metrics
  curl -s localhost:8000/metrics | headrace-agent read engine -
  headrace-agent read engine before.prom after.prom --seconds 30
  headrace-agent read dcgm http://127.0.0.1:9400/metrics --gpu 0
\b
With --json:
  {"kind": ..., "signals": {NAME: value or null}, "source": {NAME: metric}, "warnings": [...]}
holds all ten signals; shares are fractions from 0 to 1, and what the page does not give is null.
\b
Exit codes: 0 the page was read, whatever it lacks; 2 it cannot be had, or is no metrics page.
"""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show what the agent would take from one metrics page, by the code that the agent runs.",
    epilog=EPILOG,
)

Page = Annotated[str, typer.Argument(metavar="PAGE", help="A file, an http(s) URL, or - for stdin.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Timeout = Annotated[float, typer.Option(min=0.1, max=60, help="How long a URL may take, in seconds.")]


@app.command()
def engine(
    page: Page,
    later: Annotated[
        str | None,
        typer.Argument(
            metavar="[LATER_PAGE]",
            help="A later page of the same engine; counters then count from the first page on.",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="How long after PAGE the LATER_PAGE was taken, in seconds.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="The engine's kind, where it is not to be detected from the page.")
    ] = "auto",
    timeout: Timeout = 5.0,
    as_json: AsJson = False,
) -> None:
    """An inference engine's page. With one page, counters count from the engine's start."""
    from headrace_agent.commands.read import run

    run.show_engine(page, later, seconds, kind, timeout, as_json)


@app.command()
def dcgm(
    page: Page,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="UUID|INDEX|UUID:INSTANCE",
            help="One GPU, named as in a config; without it, the worst of all.",
        ),
    ] = None,
    timeout: Timeout = 5.0,
    as_json: AsJson = False,
) -> None:
    """A DCGM exporter's page."""
    from headrace_agent.commands.read import run

    run.show_dcgm(page, gpu, timeout, as_json)
