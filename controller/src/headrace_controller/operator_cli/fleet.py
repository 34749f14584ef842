"""Commands that look: status, cells, cell, pools, gateways, events, explain, audit."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace_controller.operator_cli.cell_parts import cell_parts
from headrace_controller.operator_cli.client import Client, cell_path
from headrace_controller.operator_cli.explained import explanation
from headrace_controller.operator_cli.follow import follow_events
from headrace_controller.operator_cli.options import AsJson, CellId, asking
from headrace_controller.operator_cli.picker import explain_pick
from headrace_controller.operator_cli.show import EVENT_COLUMNS, cell_table, show
from headrace_controller.operator_cli.status import status as show_status
from headrace_controller.operator_cli.tables import Table, text

Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many.")]


@asking
def status(
    client: Client,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 where something needs a look; see docs/operating.md.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """One line a site: how many cells in which state, and whether weights are published."""
    show_status(client, check, as_json)


@asking
def cells(
    client: Client,
    site: Annotated[str | None, typer.Option(help="Only cells of this site.")] = None,
    state: Annotated[str | None, typer.Option(help="Only cells in this state: READY, FAILED ...")] = None,
    model: Annotated[str | None, typer.Option(help="Only cells that serve this model.")] = None,
    node: Annotated[str | None, typer.Option(help="Only cells of this node.")] = None,
    as_json: AsJson = False,
) -> None:
    """Every cell: state, pressure, weight, and why it is where it is."""
    view = client.cells(site=site, state=state, model=model, node=node)
    with client.understood():
        show(view, [cell_table(view["cells"])], as_json)


@asking
def cell(client: Client, cell: CellId, as_json: AsJson = False) -> None:
    """One cell, and all that is known of it."""
    found = client.get(cell_path(cell))
    with client.understood():
        show(found, cell_parts(found), as_json)


@asking
def pools(client: Client, as_json: AsJson = False) -> None:
    """One line a model: its cells, and where they are."""
    found = client.get("/api/v1/pools")
    table = Table(
        ("model", "cells", "ready", "by site", "lengths", "pinned to"),
        right=("cells", "ready"),
        wrap=("by site", "pinned to"),
    )
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


@asking
def gateways(client: Client, as_json: AsJson = False) -> None:
    """One line a gateway: whether its Envoys are connected, and have the newest."""
    found = client.get("/api/v1/gateways")
    table = Table(
        ("gateway", "envoys", "newest in force", "pushes", "refused", "last refusal"),
        right=("envoys", "pushes", "refused"),
        wrap=("last refusal",),
    )
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


@asking
def events(
    client: Client,
    limit: Limit = 50,
    cell: Annotated[str | None, typer.Option(help="Only what happened to this cell.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens.")] = False,
    as_json: AsJson = False,
) -> None:
    """What happened, newest last, each with its cause. With --follow and --json one object a line."""
    if follow:
        follow_events(client, limit, cell, as_json)
        return
    found = client.get("/api/v1/events", limit=limit)
    table = Table(EVENT_COLUMNS, wrap=("event", "cause"), spare=("by", "kind", "from"), moments=("at",))
    with client.understood():
        found["events"] = [event for event in found["events"] if cell in (None, event["cell"])]
        for event in found["events"]:
            table.add_row(*(text(event[key]) for key in EVENT_COLUMNS))
        show(found, [table], as_json)


@asking
def explain(
    client: Client,
    cell: Annotated[
        str, typer.Argument(metavar="[CELL]", help="The cell's id, as `headrace cells` shows it.")
    ] = "",
    gateway: Annotated[str | None, typer.Option(help="Only as seen from this gateway.")] = None,
    request: Annotated[str, typer.Option(help="A request's x-request-id: why it went where it went.")] = "",
    as_json: AsJson = False,
) -> None:
    """Why a cell has the weights that it has: every step from its figures to what gateways hold. With
    --request, why the picker named the cell that it named."""
    if bool(cell) == bool(request):
        raise typer.BadParameter("give a CELL, or --request ID")
    if request:
        explain_pick(client, request, as_json)
        return
    found = client.get(cell_path(cell, "explain"), gateway=gateway)
    with client.understood():
        parts = [part for each in found["explanations"] for part in (*explanation(each), "")]
        show(found, parts[:-1] or [f"{cell} has not been scored yet"], as_json)


@asking
def audit(client: Client, limit: Limit = 50, as_json: AsJson = False) -> None:
    """What operators did, newest first."""
    found = client.get("/api/v1/audit", limit=limit)
    columns = ("at", "who", "source", "action", "subject", "status", "detail")
    table = Table(columns, wrap=("detail",), spare=("source", "status"), moments=("at",))
    with client.understood():
        for act in found["acts"]:
            table.add_row(*(text(act[key]) for key in columns))
        show(found, [table], as_json)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (status, cells, cell, pools, gateways, events, explain, audit):
        app.command()(command)
