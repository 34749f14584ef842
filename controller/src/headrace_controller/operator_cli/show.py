"""How things are shown: tables for people, JSON for scripts, and nothing that drives the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, Final

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

STATE_STYLE: Final = {
    "READY": "green",
    "LOADING": "yellow",
    "DRAINING": "cyan",
    "FAILED": "red",
    "TERMINATED": "dim",
}
EVENT_COLUMNS: Final = ("at", "kind", "cell", "from", "to", "event", "cause", "by")


def text(value: Any, style: str = "") -> Text:
    """What agents and engines said, as it is: no markup, and nothing that drives the terminal."""
    return Text("".join(sign if sign.isprintable() else "\ufffd" for sign in str(value)), style)


def figure(value: float | None, form: str = "{:.3g}") -> str:
    """A figure; a dash where it is not known, which is never 0."""
    return "-" if value is None else form.format(value)


def console() -> Console:
    """As wide as the terminal; in a pipe as wide as its lines, so that `grep` finds whole ones."""
    return Console() if sys.stdout.isatty() else Console(width=10_000)


def show(data: Any, parts: Iterable[RenderableType], as_json: bool) -> None:
    """The data as JSON, or what was made of it for people."""
    if as_json:
        print_json(data)
        return
    out = console()
    for part in parts:
        out.print(part)


def print_json(data: Any, indent: int | None = 2) -> None:
    """JSON on stdout."""
    json.dump(data, sys.stdout, indent=indent)
    sys.stdout.write("\n")
    sys.stdout.flush()


def say(subject: str, word: str, data: Any, as_json: bool) -> None:
    """One line about one thing."""
    if as_json:
        print_json(data)
    else:
        typer.echo(f"{subject}: {word}" if subject else word)


def marks(cell: dict[str, Any]) -> str:
    """What is missing of a cell's figures, what operators have set, and what warns; a member that is lost by
    its node."""
    found = [cell.get("fallback", "")]
    found += ["telemetry_lost"] if cell.get("telemetry_lost") else []
    found += [f"member lost: {member['node']}" for member in cell.get("members", ()) if member["lost"]]
    found += [f"override {cell['override']}"] if cell.get("override") is not None else []
    found += ["cordoned"] if cell.get("cordoned") else []
    found += [f"warning: {kind}" for kind in cell.get("warnings", ())]
    return ", ".join(filter(None, found))


def cell_table(cells: Iterable[dict[str, Any]]) -> Table:
    """One line a cell."""
    table = Table("site", "cell", "state", "for", "pressure", "weight", "heard", "marks", "cause")
    for cell in cells:
        table.add_row(
            text(cell["site"]),
            text(cell["id"]),
            text(cell["state"], STATE_STYLE.get(cell["state"], "")),
            f"{cell['state_since_s']:.0f} s",
            figure(cell["pressure"], "{:.3f}"),
            text(" ".join(f"{weight}" for _, weight in sorted(cell["weights"].items())) or "-"),
            figure(cell["heartbeat_age_s"], "{:.1f} s"),
            text(marks(cell)),
            text(cell["cause"]),
        )
    return table


def site_table(sites: Iterable[dict[str, Any]]) -> Table:
    """One line a site."""
    table = Table("site", "cells", "ready", "other states", "marks")
    for site in sites:
        others = ", ".join(
            f"{count} {state}" for state, count in sorted(site["states"].items()) if state != "READY"
        )
        marked = "cordoned" if site["cordoned"] else ""
        table.add_row(
            text(site["site"]), str(site["cells"]), str(site["ready"]), text(others or "-"), text(marked)
        )
    return table


def gateway_line(gateway: dict[str, Any]) -> str:
    """One gateway in a sentence."""
    word = "connected" if gateway["connected"] else "not connected"
    refused = f" ({gateway['last_nack']})" if gateway["last_nack"] else ""
    return f"gateway {gateway['id']}: {word}, {gateway['pushes']} pushes, {gateway['nacks']} refused{refused}"


def event_line(event: dict[str, Any]) -> Text:
    """One event in a line."""
    change = f"{event['from'] or '-'} -> {event['to']}" if event["to"] else ""
    words = (event["at"], event["kind"], event["cell"], change, event["event"], event["cause"], event["by"])
    return text("  ".join(str(word) for word in words if word), STATE_STYLE.get(event["to"], ""))
