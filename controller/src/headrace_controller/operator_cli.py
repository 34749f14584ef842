"""`headrace`: what an operator asks of a controller."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Annotated, Any, NoReturn
from urllib import error as urlerror
from urllib import request as urlrequest
from urllib.parse import quote, urlsplit

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace_controller import __version__

app = typer.Typer(
    name="headrace",
    help="Ask a Headrace controller how its cells are, and drain them.\n\n"
    "Every command takes --json for scripts. Exit codes: 0 done, 1 the controller said no or cannot be "
    "reached, 2 wrong usage.",
    epilog="""\b
Try it:
  headrace status
  headrace cells --json
  headrace drain CELL --cause "new driver" --wait && reboot
The controller is that of --url or of the variable HEADRACE_URL.
""",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
DEFAULT_URL = "http://127.0.0.1:18002"
TIMEOUT_S = 5.0
MAX_BYTES = 64 * 1024 * 1024
POLL_S = 1.0
# A drain ends by its deadline, a day at most.
MAX_POLLS = 90_000
# The admin port is reached directly: a proxy for the way out of the site does not know it.
_OPENER = urlrequest.build_opener(urlrequest.ProxyHandler({}))
_STATE_STYLE = {
    "READY": "green",
    "LOADING": "yellow",
    "DRAINING": "cyan",
    "FAILED": "red",
    "TERMINATED": "dim",
}


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise typer.BadParameter(f"{url!r} is no address; write http://HOST:PORT, as in {DEFAULT_URL}")
    return url.rstrip("/")


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="HEADRACE_URL",
        callback=_check_url,
        help="The controller's admin address (listen.admin).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Cause = Annotated[str, typer.Option(help="Why; it stands in the history.")]
CellId = Annotated[str, typer.Argument(metavar="CELL", help="The cell's id, as `headrace cells` shows it.")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.command()
def status(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """One line a site: how many cells in which state, and whether weights are published."""
    view = _call(url, "/api/v1/cells")
    with _understood(url):
        sites = _by_site(view["cells"])
        lines = [
            f"region {view['region']}: {view['warm_start']}",
            *(["self-preservation: weights hold"] if view["self_preservation"] else []),
            *map(_gateway_line, view["gateways"]),
        ]
        table = Table("site", "cells", "ready", "other states")
        for site, states in sorted(sites.items()):
            others = ", ".join(
                f"{count} {state}" for state, count in sorted(states.items()) if state != "READY"
            )
            ready = states.get("READY", 0)
            table.add_row(_text(site), str(sum(states.values())), str(ready), _text(others or "-"))
    if as_json:
        _print_json({key: view[key] for key in view if key != "cells"} | {"sites": sites})
        return
    console = _console()
    for line in lines:
        console.print(_text(line))
    console.print(table)


@app.command()
def cells(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Every cell: state, pressure, weight, and why it is where it is."""
    view = _call(url, "/api/v1/cells")
    table = Table("site", "cell", "state", "for", "pressure", "weight", "heard", "marks", "cause")
    with _understood(url):
        for cell in view["cells"]:
            table.add_row(
                _text(cell["site"]),
                _text(cell["id"]),
                _text(cell["state"], _STATE_STYLE.get(cell["state"], "")),
                f"{cell['state_since_s']:.0f} s",
                _figure(cell["pressure"], "{:.3f}"),
                _text(" ".join(f"{weight}" for _, weight in sorted(cell["weights"].items())) or "-"),
                _figure(cell["heartbeat_age_s"], "{:.1f} s"),
                _text(_marks(cell)),
                _text(cell["cause"]),
            )
    _show(view, table, as_json)


@app.command()
def events(
    url: Url = DEFAULT_URL,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest last.")] = 50,
    as_json: AsJson = False,
) -> None:
    """The newest changes of state, each with its cause."""
    found = _call(url, f"/api/v1/events?limit={limit}")
    columns = ("at", "cell", "from", "to", "event", "cause")
    table = Table(*columns)
    with _understood(url):
        for event in found["events"]:
            table.add_row(*(_text(event[key]) for key in columns))
    _show(found, table, as_json)


@app.command()
def drain(
    cell: CellId,
    cause: Cause = "asked by the operator",
    deadline: Annotated[
        float | None, typer.Option(min=0, max=86400, help="Seconds until the drain ends regardless.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the last request has finished.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send a cell no new requests and let those in flight finish.

    With --wait the exit code is 1 if the drain was taken back or the cell failed.
    """
    body: dict[str, Any] = {"cause": cause}
    if deadline is not None:
        body["deadline_s"] = deadline
    _call(url, f"/api/v1/cells/{quote(cell)}/drain", body)
    state = _state(url, cell)
    if not wait:
        _say_state(cell, state, as_json)
        return
    for _ in range(MAX_POLLS):
        if state != "DRAINING":
            break
        time.sleep(POLL_S)
        state = _state(url, cell)
    _say_state(cell, state, as_json)
    if state != "TERMINATED":
        _fail(f"{cell} is not drained: it is {state}; `headrace events` shows why")


@app.command()
def undrain(
    cell: CellId, cause: Cause = "asked by the operator", url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Take a drain back: the cell gets requests again as soon as it serves."""
    _call(url, f"/api/v1/cells/{quote(cell)}/undrain", {"cause": cause})
    _say_state(cell, _state(url, cell), as_json)


def main() -> None:
    """Entry point of `headrace`."""
    app()


def _gateway_line(gateway: dict[str, Any]) -> str:
    word = "connected" if gateway["connected"] else "not connected"
    refused = f" ({gateway['last_nack']})" if gateway["last_nack"] else ""
    return f"gateway {gateway['id']}: {word}, {gateway['pushes']} pushes, {gateway['nacks']} refused{refused}"


def _marks(cell: dict[str, Any]) -> str:
    """What is missing of a cell's figures; a member that is lost by its node."""
    lost = [f"member lost: {member['node']}" for member in cell.get("members", ()) if member["lost"]]
    silent = ["telemetry_lost"] if cell.get("telemetry_lost") else []
    return ", ".join([*filter(None, [cell.get("fallback", "")]), *silent, *lost])


def _by_site(all_cells: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    sites: dict[str, dict[str, int]] = {}
    for cell in all_cells:
        states = sites.setdefault(cell["site"], {})
        states[cell["state"]] = states.get(cell["state"], 0) + 1
    return sites


def _state(url: str, cell: str) -> str:
    found = _call(url, f"/api/v1/cells/{quote(cell)}")
    with _understood(url):
        return str(found["state"])


def _say_state(cell: str, state: str, as_json: bool) -> None:
    if as_json:
        _print_json({"cell": cell, "state": state})
    else:
        typer.echo(f"{cell}: {state}")


def _text(value: Any, style: str = "") -> Text:
    """What agents and engines said, as it is: no markup, and nothing that drives the terminal."""
    return Text("".join(sign if sign.isprintable() else "\ufffd" for sign in str(value)), style)


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _console() -> Console:
    """As wide as the terminal; in a pipe as wide as its lines, so that `grep` finds whole ones."""
    return Console() if sys.stdout.isatty() else Console(width=10_000)


def _show(data: Any, table: Table, as_json: bool) -> None:
    if as_json:
        _print_json(data)
    else:
        _console().print(table)


def _print_json(data: Any) -> None:
    json.dump(data, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _call(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """The JSON that the controller answers; ends the program with exit code 1 where it gives none."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urlrequest.Request(url + path, data, {"Content-Type": "application/json"})
        with _OPENER.open(request, timeout=TIMEOUT_S) as response:
            return json.loads(response.read(MAX_BYTES))
    except urlerror.HTTPError as error:
        _fail(
            _said(error)
            or f"{url} answered {error.code} {error.reason}; is it the listen.admin of a controller?"
        )
    except OSError as error:
        reason = getattr(error, "reason", error)
        _fail(f"{url} cannot be reached: {reason}; is the controller running, and is --url its listen.admin?")
    except (HTTPException, ValueError, RecursionError) as error:
        _fail(f"{url} does not answer as a controller does ({error!r}); is it the listen.admin of one?")


@contextmanager
def _understood(url: str) -> Iterator[None]:
    """An answer that lacks what is to be shown comes from something else, or from another version."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        _fail(
            f"{url} does not answer as a controller of version {__version__} does ({error!r}); "
            "is it the listen.admin of one, and of this version?"
        )


def _said(error: urlerror.HTTPError) -> str:
    """What the controller itself says of a refusal; empty where something else answered."""
    try:
        return str(json.loads(error.read(MAX_BYTES))["error"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
        return ""


def _fail(message: str) -> NoReturn:
    typer.echo(f"headrace: {message}", err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    main()
