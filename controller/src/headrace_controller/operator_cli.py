"""`headrace`: what an operator asks of a controller."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any
from urllib import error as urlerror
from urllib import request as urlrequest
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    name="headrace",
    help="Ask a Headrace controller how its cells are, and drain them.\n\n"
    "Every command takes --json for scripts. Exit codes: 0 done, 1 the controller said no or cannot be "
    "reached, 2 wrong usage.",
    no_args_is_help=True,
    add_completion=False,
)
Url = Annotated[
    str, typer.Option("--url", envvar="HEADRACE_URL", help="The controller's admin address (listen.admin).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
DEFAULT_URL = "http://127.0.0.1:18002"
_STATE_STYLE = {
    "READY": "green",
    "LOADING": "yellow",
    "DRAINING": "cyan",
    "FAILED": "red",
    "TERMINATED": "dim",
}


@app.command()
def status(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """One line a site: how many cells in which state, and whether weights are published."""
    view = _get(url, "/api/v1/cells")
    if as_json:
        _print_json({key: view[key] for key in view if key != "cells"} | {"sites": _by_site(view["cells"])})
        return
    console = Console()
    console.print(f"region {view['region']}: {view['warm_start']}")
    for gateway in view["gateways"]:
        word = "connected" if gateway["connected"] else "[red]not connected[/red]"
        console.print(
            f"gateway {gateway['id']}: {word}, {gateway['pushes']} pushes, {gateway['nacks']} refused"
        )
    table = Table("site", "cells", "ready", "other states")
    for site, states in sorted(_by_site(view["cells"]).items()):
        others = ", ".join(f"{count} {state}" for state, count in sorted(states.items()) if state != "READY")
        table.add_row(site, str(sum(states.values())), str(states.get("READY", 0)), others or "-")
    console.print(table)


@app.command()
def cells(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Every cell: state, pressure, weight, and why it is where it is."""
    view = _get(url, "/api/v1/cells")
    if as_json:
        _print_json(view)
        return
    table = Table("site", "cell", "state", "for", "pressure", "weight", "heard", "cause")
    for cell in view["cells"]:
        style = _STATE_STYLE.get(cell["state"], "")
        table.add_row(
            cell["site"],
            cell["id"],
            f"[{style}]{cell['state']}[/{style}]" if style else cell["state"],
            f"{cell['state_since_s']:.0f} s",
            _figure(cell["pressure"], "{:.3f}"),
            " ".join(f"{weight}" for _, weight in sorted(cell["weights"].items())) or "-",
            _figure(cell["heartbeat_age_s"], "{:.1f} s"),
            cell["cause"],
        )
    Console().print(table)


@app.command()
def events(
    url: Url = DEFAULT_URL,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest last.")] = 50,
    as_json: AsJson = False,
) -> None:
    """The newest changes of state, each with its cause."""
    found = _get(url, f"/api/v1/events?limit={limit}")
    if as_json:
        _print_json(found)
        return
    table = Table("at", "cell", "from", "to", "event", "cause")
    for event in found["events"]:
        table.add_row(*(event[key] for key in ("at", "cell", "from", "to", "event", "cause")))
    Console().print(table)


@app.command()
def drain(
    cell: Annotated[str, typer.Argument(help="The cell's id.")],
    cause: Annotated[str, typer.Option(help="Why; it stands in the history.")] = "asked by the operator",
    deadline: Annotated[float | None, typer.Option(help="Seconds until the drain ends regardless.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the last request has finished.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Send a cell no new requests and let those in flight finish."""
    body: dict[str, Any] = {"cause": cause}
    if deadline is not None:
        body["deadline_s"] = deadline
    _post(url, f"/api/v1/cells/{quote(cell)}/drain", body)
    typer.echo(f"{cell}: draining")
    polls = 0
    while wait and polls < 86400:
        state = _get(url, f"/api/v1/cells/{quote(cell)}")["state"]
        if state != "DRAINING":
            typer.echo(f"{cell}: {state}")
            return
        polls += 1
        time.sleep(1.0)


@app.command()
def undrain(
    cell: Annotated[str, typer.Argument(help="The cell's id.")],
    cause: Annotated[str, typer.Option(help="Why; it stands in the history.")] = "asked by the operator",
    url: Url = DEFAULT_URL,
) -> None:
    """Take a drain back: the cell gets requests again."""
    _post(url, f"/api/v1/cells/{quote(cell)}/undrain", {"cause": cause})
    typer.echo(f"{cell}: back in service")


def main() -> None:
    """Entry point of `headrace`."""
    app()


def _by_site(all_cells: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    sites: dict[str, dict[str, int]] = {}
    for cell in all_cells:
        states = sites.setdefault(cell["site"], {})
        states[cell["state"]] = states.get(cell["state"], 0) + 1
    return sites


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _print_json(data: Any) -> None:
    json.dump(data, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _get(url: str, path: str) -> Any:
    return _call(urlrequest.Request(url.rstrip("/") + path))


def _post(url: str, path: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    return _call(
        urlrequest.Request(url.rstrip("/") + path, json.dumps(body).encode(), headers, method="POST")
    )


def _call(request: urlrequest.Request) -> Any:
    try:
        with urlrequest.urlopen(request, timeout=5) as response:
            return json.load(response)
    except urlerror.HTTPError as error:
        _fail(_said(error.read()) or f"the controller answered {error.code}")
    except (OSError, ValueError) as error:
        _fail(f"{request.full_url} cannot be read: {error}; is --url the listen.admin of a running one?")


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return ""


def _fail(message: str) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    main()
