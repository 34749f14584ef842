"""`headrace-lab demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from headrace_shared.net import CannotListenError, HostPort, require_free


def demo(
    seconds: Annotated[float, typer.Option(help="How long load is sent.", min=15, max=3600)] = 40,
    rps: Annotated[float, typer.Option(help="Requests per second, on average.", min=1, max=200)] = 10,
    seed: Annotated[int, typer.Option(help="Fixes the load and who is killed.", min=0)] = 1,
    json: Annotated[Path | None, typer.Option(help="Write the result here, raw records beside it.")] = None,
    keep_logs: Annotated[
        Path | None, typer.Option(help="Keep settings and logs of the programs in this directory.")
    ] = None,
    baseline: Annotated[
        Literal["rr", "lr"] | None,
        typer.Option(help="A plain Envoy, for comparison; the kill is then shown, not judged."),
    ] = None,
    picker: Annotated[
        bool, typer.Option("--picker", help="Let the picker name a cell for each request.")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Write the live table here as a picture, as it stands when load ends.")
    ] = None,
    gateway_port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1 where Envoy takes requests; 0 = chosen.", min=0, max=65535)
    ] = 0,
) -> None:
    """Show the whole path at work: cells, exporters, agents, controller, Envoy, load, and a killed engine.

    Starts 3 sites of 3 simulated cells with a GPU exporter and an agent each, one controller and
    one Envoy, all on 127.0.0.1, sends streaming completions through Envoy, kills one busy engine
    half way with SIGKILL, goes on, stops everything and says whether it worked. On a terminal a
    live table shows each cell's state, pressure, weight and share.

    Exit status: 0 it worked; 1 it did not (the last line says which checks failed); 2 wrong
    options or a port in use; 130 after Ctrl-C.
    """
    from headrace_lab.demo.run import Plan
    from headrace_lab.demo.run import demo as run
    from headrace_lab.stack.launch import live
    from headrace_lab.tables import new_console

    if picker and baseline:
        raise typer.BadParameter("a plain Envoy has no picker; leave out --picker or --baseline")
    plan = Plan(seconds, rps, seed, json, keep_logs, baseline or "", gateway_port, svg, picker)
    console = new_console()
    check_places(json, keep_logs, gateway_port)
    raise typer.Exit(live(lambda: run(plan, console), console))


def check_places(json: Path | None, keep_logs: Path | None, gateway_port: int) -> None:
    """Refuse, before anything starts, files that cannot be written and a port in use."""
    for path, hint in ((json, "--json"), (keep_logs, "--keep-logs")):
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch() if hint == "--json" else path.mkdir(exist_ok=True)
        except OSError as error:
            raise typer.BadParameter(f"{path}: {error.strerror or error}", param_hint=hint) from error
    if gateway_port:
        try:
            require_free("--gateway-port", HostPort("127.0.0.1", gateway_port))
        except CannotListenError as error:
            raise typer.BadParameter(str(error)) from error
