"""How the commands write: tables for people, JSON for programs, progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace_shared.signals import INDEX, SIGNALS

BAR_WIDTH: Final = 10
NOTHING: Final = "-"


def console(stderr: bool = False) -> Console:
    """As wide as the terminal; in a pipe as wide as its lines, so that `grep` finds whole ones."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 10_000)


def plain(value: Any, style: str = "") -> Text:
    """What other programs said, as it is: no markup, and nothing that drives the terminal."""
    return Text("".join(sign if sign.isprintable() else "\ufffd" for sign in str(value)), style)


def print_json(data: Any) -> None:
    """One JSON document on stdout."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def shown(name: str, value: float | None) -> str:
    """A signal's figure with its unit, `-` where it was not measured."""
    if value is None:
        return NOTHING
    unit = SIGNALS[INDEX[name]].unit
    return f"{100 * value:.1f} %" if unit == "fraction" else f"{value:.4g} {unit}"


def pressure_of(name: str, value: float) -> float:
    """A signal's figure within its default range: 0 = none, 1 = most pressure."""
    signal = SIGNALS[INDEX[name]]
    return min(1.0, max(0.0, (value - signal.low) / (signal.high - signal.low)))


def bar(share: float | None) -> str:
    """A share, drawn."""
    if share is None:
        return ""
    full = round(share * BAR_WIDTH)
    return "█" * full + "·" * (BAR_WIDTH - full)


def signal_table(
    signals: Mapping[str, float | None],
    source: Mapping[str, str],
    age_s: Mapping[str, float] | None = None,
) -> Table:
    """All signals of the catalogue: figure, how much pressure that is, where it comes from, and, where
    ages are given, how old it is."""
    columns = ["signal", "value", "pressure", "from", *([] if age_s is None else ["age"]), "meaning"]
    table = Table(*columns, box=box.SIMPLE)
    for signal in SIGNALS:
        value = signals.get(signal.name)
        share = None if value is None else pressure_of(signal.name, value)
        row: list[str | Text] = [
            signal.name,
            shown(signal.name, value),
            bar(share),
            plain(source.get(signal.name, NOTHING)),
        ]
        if age_s is not None:
            age = age_s.get(signal.name)
            row.append(NOTHING if age is None else f"{age:.1f} s")
        table.add_row(*row, signal.meaning, style=None if value is not None else "dim")
    return table
