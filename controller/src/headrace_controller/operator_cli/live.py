"""Commands that go on: tail, and top."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from headrace_controller.operator_cli.client import Client, Code, Gone, fail
from headrace_controller.operator_cli.options import DEFAULT_URL, AsJson, Ca, Token, Url
from headrace_controller.operator_cli.show import (
    cell_table,
    console,
    event_line,
    gateway_line,
    print_json,
    site_table,
    text,
)

STREAM_TIMEOUT_S = 45.0
"""Three heartbeats of the stream."""
RETRY_S = 2.0
MAX_RETRIES = 30
TOP_PAGE: Final = 1000


def tail(
    cell: Annotated[
        str, typer.Argument(metavar="[CELL]", help="Only this cell's events.", show_default=False)
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many from before.")] = 10,
    url: Url = DEFAULT_URL,
    token: Token = "",
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """What happens, as it happens, until Ctrl-C. With --json one object a line."""
    follow_events(Client(url, token, ca), limit, cell, as_json)


def follow_events(client: Client, limit: int, cell: str, as_json: bool) -> None:
    """Print the newest events, and go on with what comes; a controller that restarts is waited for."""
    out = console()
    found = client.get("/api/v1/events", limit=limit)

    def tell(event: dict[str, Any]) -> None:
        if cell in ("", event["cell"]):
            print_json(event, indent=None) if as_json else out.print(event_line(event))
            sys.stdout.flush()

    with suppress(KeyboardInterrupt), client.understood():
        for event in found["events"]:
            tell(event)
        for event in _follow(client, int(found["last_id"])):
            tell(event)


def _follow(client: Client, seen: int) -> Iterator[dict[str, Any]]:
    """Events after `seen`, without end; ends the program when the controller stays away."""
    away = 0
    while True:
        try:
            with client.open("/api/v1/events/stream", STREAM_TIMEOUT_S, after=seen) as stream:
                for kind, data in _frames(stream):
                    away = 0
                    if kind == "gap":
                        typer.echo("headrace: some events before the next are not kept any more", err=True)
                        continue
                    event = json.loads(data)
                    seen = int(event["id"])
                    yield event
        except Gone as gone:
            away += 1
            if away == 1:
                typer.echo(f"headrace: the controller is away ({gone}); trying again", err=True)
            if away > MAX_RETRIES:
                fail(f"{client.url} does not come back", Code.UNREACHABLE)
        time.sleep(RETRY_S)


def _frames(stream: Any) -> Iterator[tuple[str, str]]:
    """The events of a stream of server-sent events: kind and data."""
    kind, data = "", ""
    for raw in stream:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        name, _, value = line.partition(":")
        if name == "event":
            kind = value.strip()
        elif name == "data":
            data += value.removeprefix(" ")
        elif not line and data:
            yield kind, data
            kind, data = "", ""
    raise Gone("the stream ended")


def top(
    site: Annotated[str | None, typer.Option(help="Only cells of this site.")] = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many cells, most pressure first.")] = 30,
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two looks.")] = 1.0,
    rounds: Annotated[int, typer.Option(min=0, help="Looks until it ends; 0 = until Ctrl-C.")] = 0,
    url: Url = DEFAULT_URL,
    token: Token = "",
    ca: Ca = None,
) -> None:
    """The region live: the cells under most pressure, of the first thousand, and whatever is not READY."""
    client = Client(url, token, ca)
    looked = 1
    first = _look(client, site, rows, client.get)
    with suppress(KeyboardInterrupt), Live(first, console=console(), auto_refresh=False) as screen:
        while looked != rounds:
            time.sleep(interval)
            try:
                screen.update(_look(client, site, rows, client.ask), refresh=True)
            except Gone as gone:
                screen.update(Text(f"the controller is away: {gone}", "red"), refresh=True)
            looked += 1


def _look(client: Client, site: str | None, rows: int, get: Any) -> RenderableType:
    """One look; `get` asks."""
    wanted = {} if site is None else {"site": site}
    status = get("/api/v1/status")
    page = get("/api/v1/cells", limit=TOP_PAGE, **wanted)
    with client.understood():
        shown = sorted(
            page["cells"], key=lambda cell: (cell["state"] == "READY", -(cell["pressure"] or 0.0), cell["id"])
        )
        head = f"region {status['region']}: {status['warm_start']}; {page['total']} cells"
        more = f"{page['total'] - rows} more" if page["total"] > rows else ""
        parts: list[RenderableType] = [text(head)]
        parts += [Text("self-preservation: weights hold", "red")] if status["self_preservation"] else []
        parts += [text(gateway_line(gateway)) for gateway in status["gateways"]]
        return Group(*parts, site_table(status["sites"]), cell_table(shown[:rows]), text(more))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(tail)
    app.command()(top)
