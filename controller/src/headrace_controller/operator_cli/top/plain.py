"""`top` as lines: for a pipe, a terminal that cannot be drawn on, and scripts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from headrace_controller.operator_cli.client import fail
from headrace_controller.operator_cli.show import print_json
from headrace_controller.operator_cli.terminal import Terminal, terminal, warn, write
from headrace_controller.operator_cli.top.columns import layout
from headrace_controller.operator_cli.top.rows import Look, Row, matching, ordered
from headrace_controller.operator_cli.top.source import Source, SourceError
from headrace_shared.clock import Clock

MAX_AWAY = 60
"""Looks in a row that may fail before the program ends."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is shown. `rows` 0 = all cells; `rounds` 0 = until Ctrl-C."""

    site: str | None = None
    words: str = ""
    key: str = "site"
    rows: int = 0
    rounds: int = 0
    interval_s: float = 1.0
    as_json: bool = False


def run(source: Source, clock: Clock, wanted: Wanted) -> None:
    """Print look after look. The first must succeed; later ones may fail for a while, which is said."""
    away, looked = 0, 0
    with suppress(KeyboardInterrupt):
        while True:
            try:
                _print(source.look(), clock, wanted)
                away = 0
            except SourceError as error:
                away += 1
                if looked == 0 or away > MAX_AWAY:
                    fail(str(error), error.code)
                if away == 1:
                    warn(f"{error}; trying again")
            looked += 1
            if looked == wanted.rounds:
                return
            time.sleep(wanted.interval_s)


def _print(look: Look, clock: Clock, wanted: Wanted) -> None:
    if wanted.as_json:
        rows = [asdict(row) for row in _rows(look, wanted)]
        at = clock.wall_ns() / 1e9
        print_json({"at": at, "headline": look.headline, "alarms": look.alarms, "cells": rows}, indent=None)
        return
    write("".join(f"{line}\n" for line in (*text_lines(look, wanted, terminal()), "")))


def _rows(look: Look, wanted: Wanted) -> list[Row]:
    chosen = [row for row in look.rows if wanted.site in (None, row.site)]
    made = ordered(matching(chosen, wanted.words), wanted.key)
    return made[: wanted.rows] if wanted.rows else made


def text_lines(look: Look, wanted: Wanted, to: Terminal) -> Iterator[str]:
    """One look, line by line."""
    rows = _rows(look, wanted)
    yield look.headline
    yield from look.alarms
    made = layout(rows, to.width, to.unicode)
    yield "".join(to.styled(piece.words, "bold") for piece in made.head()).rstrip()
    for row in rows:
        yield "".join(to.styled(piece.words, piece.style) for piece in made.line(row)).rstrip()
    left = len(_rows(look, replace(wanted, rows=0))) - len(rows)
    if left:
        yield f"{left} more"
