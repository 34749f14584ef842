"""Commands that go on: top, and tail."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, Final

import typer

from headrace_controller.operator_cli import tailing
from headrace_controller.operator_cli.client import Client
from headrace_controller.operator_cli.options import AsJson, asking
from headrace_controller.operator_cli.terminal import terminal
from headrace_controller.operator_cli.top import plain
from headrace_controller.operator_cli.top.rows import KEYS
from headrace_controller.operator_cli.top.source import ApiSource
from headrace_shared.clock import SystemClock

SortKey = StrEnum("SortKey", {key.upper(): key for key in KEYS})  # type: ignore[misc]
BY_SITE: Final = SortKey("site")
Site = Annotated[str | None, typer.Option(help="Only cells of this site.")]
Interval = Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two looks.")]


@asking
def top(
    client: Client,
    site: Site = None,
    search: Annotated[
        str, typer.Option(help="Only cells with these words; as after / on the screen.", show_default=False)
    ] = "",
    sort: Annotated[SortKey, typer.Option(help="Sort by this.")] = BY_SITE,
    rows: Annotated[
        int, typer.Option(min=0, max=10_000, help="As lines: how many cells; 0 = all.", show_default=False)
    ] = 0,
    interval: Interval = 1.0,
    rounds: Annotated[
        int, typer.Option(min=0, help="As lines: looks until it ends.", show_default=False)
    ] = 0,
    lines: Annotated[bool, typer.Option("--plain", help="Print lines, also on a terminal.")] = False,
    as_json: AsJson = False,
) -> None:
    """The region live: every cell's state, pressure, weight and load; ? shows the keys.

    In a pipe, with --plain, --rounds or --json: lines, look after look; with --json one object a look.
    """
    source, clock, able = ApiSource(client), SystemClock(), terminal()
    if as_json or lines or rounds or not able.interactive or not _can_be_drawn_on():
        wanted = plain.Wanted(site, search, sort.value, rows, rounds, interval, as_json)
        plain.run(source, clock, wanted)
        return
    # What is wrong from the beginning (no controller there, no token) is better said than drawn.
    client.get("/api/v1/status")
    from headrace_controller.operator_cli.top.app import Top  # Textual takes half a second to load.

    Top(
        source,
        clock,
        interval_s=interval,
        site=site,
        search=search,
        key=sort.value,
        unicode=able.unicode,
        colour=able.colour,
    ).run()


@asking
def tail(
    client: Client,
    cell: Annotated[
        str, typer.Argument(metavar="[CELL]", help="Only this cell's heartbeats.", show_default=False)
    ] = "",
    site: Site = None,
    count: Annotated[
        int, typer.Option(min=0, help="Lines until it ends; 0 = until Ctrl-C.", show_default=False)
    ] = 0,
    interval: Interval = 1.0,
    as_json: AsJson = False,
) -> None:
    """Heartbeats as they come: one line for each cell that was heard, and what changed with it.

    A cell that falls silent, and one that changes its state, is said once. With --json one object a line.
    """
    tailing.tail(client, SystemClock(), tailing.Wanted(cell, site, count, interval, as_json))


def _can_be_drawn_on() -> bool:
    """Textual reads keys from stdin, and draws by way of stderr."""
    return os.isatty(0) and os.isatty(2)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(tail)
    app.command()(top)
