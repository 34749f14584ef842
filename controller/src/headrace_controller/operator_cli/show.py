"""How things are shown: tables for people, JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from headrace_controller.operator_cli.tables import Part, Table, Words, lines, text
from headrace_controller.operator_cli.terminal import clean, terminal, write

STATE_STYLE: Final = {
    "READY": "green",
    "LOADING": "yellow",
    "DRAINING": "cyan",
    "FAILED": "red",
    "TERMINATED": "dim",
}
EVENT_COLUMNS: Final = ("at", "kind", "cell", "from", "to", "event", "cause", "by")


def figure(value: float | None, form: str = "{:.3g}") -> str:
    """A figure; a dash where it is not known, which is never 0."""
    return "-" if value is None else form.format(value)


def show(data: Any, parts: Iterable[Part], as_json: bool) -> None:
    """The data as JSON, or what was made of it for people."""
    if as_json:
        print_json(data)
    else:
        print_parts(parts)


def print_parts(parts: Iterable[Part]) -> None:
    """Tables and lines on stdout."""
    write("".join(f"{line}\n" for line in lines(parts, terminal())))


def print_json(data: Any, indent: int | None = 2) -> None:
    """JSON on stdout."""
    write(json.dumps(data, indent=indent) + "\n")


def say(subject: str, word: str, data: Any, as_json: bool) -> None:
    """One line about one thing."""
    show(data, [f"{subject}: {word}" if subject else word], as_json)


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


def state_words(state: str) -> Words:
    """A state in its colour."""
    return text(state, STATE_STYLE.get(state, ""))


def cell_table(cells: Iterable[dict[str, Any]]) -> Table:
    """One line a cell."""
    table = Table(
        ("site", "cell", "state", "for", "pressure", "weight", "heard", "marks", "cause"),
        right=("for", "pressure", "weight", "heard"),
        wrap=("marks", "cause"),
        spare=("heard", "for"),
    )
    for cell in cells:
        table.add_row(
            text(cell["site"]),
            text(cell["id"]),
            state_words(cell["state"]),
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
    table = Table(
        ("site", "cells", "ready", "other states", "marks"),
        right=("cells", "ready"),
        wrap=("other states", "marks"),
    )
    for site in sites:
        table.add_row(
            text(site["site"]),
            str(site["cells"]),
            str(site["ready"]),
            text(other_states(site["states"]) or "-"),
            text("cordoned" if site["cordoned"] else ""),
        )
    return table


def other_states(states: dict[str, int]) -> str:
    """How many cells are in which state but READY."""
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()) if state != "READY")


def gateway_line(gateway: dict[str, Any]) -> str:
    """One gateway in a sentence."""
    word = "connected" if gateway["connected"] else "not connected"
    refused = f" ({gateway['last_nack']})" if gateway["last_nack"] else ""
    return clean(
        f"gateway {gateway['id']}: {word}, {gateway['pushes']} pushes, {gateway['nacks']} refused{refused}"
    )


def event_line(event: dict[str, Any]) -> Words:
    """One event in a line."""
    change = f"{event['from'] or '-'} -> {event['to']}" if event["to"] else ""
    words = (event["at"], event["kind"], event["cell"], change, event["event"], event["cause"], event["by"])
    return text("  ".join(str(word) for word in words if word), STATE_STYLE.get(event["to"], ""))
