"""The picker: on, off, how it does, and why it named a cell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer

from headrace_controller.operator_cli.client import Client
from headrace_controller.operator_cli.options import ASKED, AsJson, Cause, asking
from headrace_controller.operator_cli.show import figure, say, show
from headrace_controller.operator_cli.tables import Part, Table, text
from headrace_controller.operator_cli.terminal import warn

PATH = "/api/v1/picker"


class Action(StrEnum):
    """What to do with it."""

    ON = "on"
    OFF = "off"
    STATUS = "status"


@asking
def picker(
    client: Client,
    action: Annotated[Action, typer.Argument(help="on, off or status.")] = Action.STATUS,
    cause: Cause = ASKED,
    as_json: AsJson = False,
) -> None:
    """Let the picker name a cell for each request (on), leave all to the weights (off), or show how it
    does (status)."""
    if action is Action.STATUS:
        found = client.get(PATH)
        with client.understood():
            show(found, list(_status(found)), as_json)
        return
    told = client.call("POST", PATH, {"on": action is Action.ON, "cause": cause})
    with client.understood():
        kept = bool(told["kept"])
    say("", f"picker {action.value}", told, as_json)
    if not kept:
        warn("in force, but not on disk: a restart of the controller would forget it")


def explain_pick(client: Client, request: str, as_json: bool) -> None:
    """Why a request went where it went."""
    found = client.get(f"/api/v1/requests/{quote(request, safe='')}/pick")
    with client.understood():
        show(found, list(_pick(found)), as_json)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(picker)


def _status(found: dict[str, Any]) -> list[Part]:
    table = Table(("outcome", "picks"), right=("picks",))
    for outcome, count in sorted(found["picks"].items()):
        table.add_row(text(outcome), str(count))
    lines: list[Part] = [
        "names cells" if found["naming"] else text(f"names no cell: {found['said']}", "yellow"),
        f"{found['open_requests']} requests wait for their first token; {found['lost_requests']} were never "
        "answered",
        f"predicted times are off by {figure(found['prediction_error'], '{:.2f}')} times, a plain guess by "
        f"{figure(found['guess_error'], '{:.2f}')}",
    ]
    if found.get("cache_found") is not None:
        lines.append(f"{found['cache_found']:.0%} of what was expected in prefix caches was found there")
    return [*lines, table] if table.rows else lines


def _pick(found: dict[str, Any]) -> list[Part]:
    session = f", session {found['session']}" if found["session"] else ""
    lines: list[Part] = [
        text(f"{found['request']} at {found['gateway']}, {found['age_s']:.1f} s ago", "bold"),
        text(f"{found['model']}, about {found['prompt_tokens']} tokens{session}: {found['outcome']}"),
    ]
    table = Table(
        (
            "named",
            "cell",
            "cost",
            "first token",
            "held up",
            "path",
            "before it",
            "cached",
            "penalty",
            "usable",
        ),
        right=("named", "cost", "first token", "held up", "path", "before it", "cached", "penalty"),
        spare=("cached", "path", "held up", "penalty"),
    )
    for each in found["candidates"]:
        table.add_row(
            str(each["named"] or "-"),
            text(each["cell"]),
            figure(each["cost_s"], "{:.4f} s"),
            figure(each["predicted_s"], "{:.4f} s"),
            figure(each.get("held_up_s"), "{:.4f} s"),
            figure(each["rtt_s"], "{:.4f} s"),
            figure(each["work_tokens"], "{:.0f} tokens"),
            figure(each.get("cached_tokens"), "{:.0f} tokens"),
            figure(each["penalty"], "{:.2f}"),
            "yes" if each["usable"] else "no",
        )
    if table.rows:
        lines.append(table)
    if (left := found["candidates_total"] - len(found["candidates"])) > 0:
        lines.append(f"and {left} that cost more")
    if found["served_by"]:
        lines.append(text(f"served by {found['served_by']}, first token after {_seconds(found)}"))
    return lines


def _seconds(found: dict[str, Any]) -> str:
    observed = figure(found["observed_s"], "{:.4f} s")
    predicted = found["predicted_s"]
    return observed if predicted is None else f"{observed} (predicted {predicted:.4f} s)"
