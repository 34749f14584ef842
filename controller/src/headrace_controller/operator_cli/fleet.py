"""Commands that look: status, cells, cell, pools, gateways, events, explain, audit."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from headrace_controller.operator_cli.client import Client, cell_path, fail
from headrace_controller.operator_cli.explained import explanation
from headrace_controller.operator_cli.live import follow_events
from headrace_controller.operator_cli.options import DEFAULT_URL, AsJson, Ca, CellId, Token, Url
from headrace_controller.operator_cli.show import (
    EVENT_COLUMNS,
    cell_table,
    figure,
    gateway_line,
    show,
    site_table,
    text,
)

Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many.")]


def status(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 where something needs a look; see docs/operating.md.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """One line a site: how many cells in which state, and whether weights are published."""
    client = Client(url, token, ca)
    view = client.get("/api/v1/status")
    with client.understood():
        lines = [f"region {view['region']}: {view['warm_start']}"]
        lines += ["self-preservation: weights hold"] if view["self_preservation"] else []
        lines += [f"{intent['kind']} {_detail(intent)}".rstrip() for intent in view["intents"]]
        lines += [gateway_line(gateway) for gateway in view["gateways"]]
        troubles = _troubles(view)
        show(view, [*map(text, lines), site_table(view["sites"])], as_json)
    if check and troubles:
        fail("; ".join(troubles))


def cells(
    site: Annotated[str | None, typer.Option(help="Only cells of this site.")] = None,
    state: Annotated[str | None, typer.Option(help="Only cells in this state: READY, FAILED ...")] = None,
    model: Annotated[str | None, typer.Option(help="Only cells that serve this model.")] = None,
    node: Annotated[str | None, typer.Option(help="Only cells of this node.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Every cell: state, pressure, weight, and why it is where it is."""
    client = Client(url, token, ca)
    view = client.cells(site=site, state=state, model=model, node=node)
    with client.understood():
        show(view, [cell_table(view["cells"])], as_json)


def cell(
    cell: CellId, url: Url = DEFAULT_URL, token: Token = "", ca: Ca = None, as_json: AsJson = False
) -> None:
    """One cell, and all that is known of it."""
    client = Client(url, token, ca)
    found = client.get(cell_path(cell))
    with client.understood():
        show(
            found,
            [
                cell_table([found["cell"]]),
                _facts(found),
                _signals(found["cell"]),
                _reports(found),
                _history(found),
            ],
            as_json,
        )


def pools(url: Url = DEFAULT_URL, token: Token = "", ca: Ca = None, as_json: AsJson = False) -> None:
    """One line a model: its cells, and where they are."""
    client = Client(url, token, ca)
    found = client.get("/api/v1/pools")
    table = Table("model", "cells", "ready", "by site", "lengths", "pinned to")
    with client.understood():
        for pool in found["pools"]:
            sites = ", ".join(f"{site} {count}" for site, count in sorted(pool["ready_by_site"].items()))
            pinned = "-" if pool["pinned_to"] is None else ", ".join(pool["pinned_to"]) or "no site"
            lengths = ", ".join(map(str, pool["max_model_len"]))
            table.add_row(
                text(pool["model"]),
                str(pool["cells"]),
                str(pool["ready"]),
                text(sites or "-"),
                lengths or "-",
                text(pinned),
            )
        show(found, [table], as_json)


def gateways(url: Url = DEFAULT_URL, token: Token = "", ca: Ca = None, as_json: AsJson = False) -> None:
    """One line a gateway: whether its Envoys are connected, and have the newest."""
    client = Client(url, token, ca)
    found = client.get("/api/v1/gateways")
    table = Table("gateway", "envoys", "newest in force", "pushes", "refused", "last refusal")
    with client.understood():
        for gateway in found["gateways"]:
            table.add_row(
                text(gateway["id"]),
                str(gateway["streams"]),
                "yes" if gateway["in_force"] else "no",
                str(gateway["pushes"]),
                str(gateway["nacks"]),
                text(gateway["last_nack"] or "-"),
            )
        show(found, [table], as_json)


def events(
    limit: Limit = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """What happened, newest last, each with its cause."""
    client = Client(url, token, ca)
    if follow:
        follow_events(client, limit, "", as_json)
        return
    found = client.get("/api/v1/events", limit=limit)
    table = Table(*EVENT_COLUMNS)
    with client.understood():
        for event in found["events"]:
            table.add_row(*(text(event[key]) for key in EVENT_COLUMNS))
        show(found, [table], as_json)


def explain(
    cell: CellId,
    gateway: Annotated[str | None, typer.Option(help="Only as seen from this gateway.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Why a cell has the weights that it has: every step from its figures to what gateways hold."""
    client = Client(url, token, ca)
    found = client.get(cell_path(cell, "explain"), gateway=gateway)
    with client.understood():
        parts = [part for each in found["explanations"] for part in explanation(each)]
        show(found, parts or [text(f"{cell} has not been scored yet")], as_json)


def audit(
    limit: Limit = 50, url: Url = DEFAULT_URL, token: Token = "", ca: Ca = None, as_json: AsJson = False
) -> None:
    """What operators did, newest first."""
    client = Client(url, token, ca)
    found = client.get("/api/v1/audit", limit=limit)
    columns = ("at", "who", "source", "action", "subject", "status", "detail")
    table = Table(*columns)
    with client.understood():
        for act in found["acts"]:
            table.add_row(*(text(act[key]) for key in columns))
        show(found, [table], as_json)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (status, cells, cell, pools, gateways, events, explain, audit):
        app.command()(command)


def _detail(intent: dict[str, Any]) -> str:
    what = [intent["subject"], "" if intent["weight"] is None else str(intent["weight"])]
    what += [f"to {', '.join(intent['sites']) or 'no site'}"] if intent["kind"] == "pin" else []
    why = f"({intent['cause']}; {intent['by']}, {intent['at']})"
    return " ".join([*filter(None, what), why])


def _troubles(view: dict[str, Any]) -> list[str]:
    """What --check complains of."""
    found = [] if view["ready"] else [str(view["warm_start"])]
    found += ["self-preservation holds the weights"] if view["self_preservation"] else []
    found += [f"gateway {each['id']} is not connected" for each in view["gateways"] if not each["connected"]]
    found += [
        f"gateway {each['id']} refuses what it is sent"
        for each in view["gateways"]
        if each["connected"] and not each["in_force"] and each["last_nack"]
    ]
    found += [
        f"site {each['site']} has no READY cell"
        for each in view["sites"]
        if each["cells"] and not each["ready"]
    ]
    return found


def _facts(found: dict[str, Any]) -> Table:
    one, table = found["cell"], Table("", "", show_header=False)
    drain = found["drain"]
    facts = {
        "node": one["node"],
        "address": one["address"],
        "engine": one["engine"],
        "models": ", ".join(
            f"{each['id']} ({each['max_model_len'] or 'unknown length'})" for each in found["served"]
        ),
        "GPUs": ", ".join(found["gpus"]),
        "labels": ", ".join(f"{key}={value}" for key, value in sorted(found["labels"].items())),
        "drain": ""
        if drain is None
        else f"{drain['cause']} ({drain['requested_by']}), {drain['remaining_s']:.0f} s left",
        "in flight": figure(one["in_flight"], "{}"),
        "error rate": figure(one["error_rate"]),
        "requests": ", ".join(f"{count} {kind}" for kind, count in one["requests"].items()),
    }
    for name, value in facts.items():
        table.add_row(name, text(value or "-"))
    return table


def _signals(one: dict[str, Any]) -> Table:
    table = Table("signal", "value", "contribution")
    for name, value in one["signals"].items():
        table.add_row(name, figure(value), figure(one["contributions"].get(name), "{:.4f}"))
    return table


def _reports(found: dict[str, Any]) -> Table:
    table = Table("gateway saw", "requests", "in progress", "first byte p50", "p95", "whole p50", "p95")
    for gateway, report in sorted(found["reports"].items()):
        counts = ", ".join(f"{count} {name}" for name, count in report["counts"].items() if count)
        times = ("first_byte_p50_s", "first_byte_p95_s", "whole_p50_s", "whole_p95_s")
        table.add_row(
            text(gateway),
            text(counts or "-"),
            str(report["in_progress"]),
            *(figure(report[name], "{:.3f} s") for name in times),
        )
    return table


def _history(found: dict[str, Any]) -> Table:
    table = Table("at", "from", "to", "event", "cause")
    for each in found["history"]:
        table.add_row(*(text(each[key]) for key in ("at", "from", "to", "event", "cause")))
    return table
