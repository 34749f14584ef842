"""One cell in tables: its facts, its signals, what gateways saw, its history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headrace_controller.operator_cli.show import STATE_STYLE, figure, marks
from headrace_controller.operator_cli.tables import Part, Table, text


def cell_parts(found: dict[str, Any], between: Iterable[Part] = ()) -> Iterator[Part]:
    """All that is known of a cell: an answer of /api/v1/cells/CELL. `between` stands in for its signals."""
    yield _facts(found)
    yield ""
    yield from between or (_signals(found["cell"]),)
    yield from ("", _reports(found)) if found["reports"] else ()
    yield from ("", _history(found))


def _facts(found: dict[str, Any]) -> Table:
    one, table = found["cell"], Table(("fact", "value"), wrap=("value",), head=False)
    why = f" ({one['cause']})" if one["cause"] else ""
    state = f"{one['state']} for {one['state_since_s']:.0f} s{why}"
    table.add_row("cell", text(f"{one['id']} at {one['site']}, node {one['node']}"))
    table.add_row("state", text(state, STATE_STYLE.get(one["state"], "")))
    facts = {
        "pressure": figure(one["pressure"], "{:.3f}"),
        "weight": ", ".join(f"{gateway} {weight}" for gateway, weight in sorted(one["weights"].items())),
        "heard": figure(one["heartbeat_age_s"], "{:.1f} s ago"),
        "address": one["address"],
        "engine": one["engine"],
        "models": ", ".join(
            f"{each['id']} ({each['max_model_len'] or 'unknown length'})" for each in found["served"]
        ),
        "GPUs": ", ".join(found["gpus"]),
        "in flight": figure(one["in_flight"], "{}"),
        "error rate": figure(one["error_rate"]),
    }
    for name, value in facts.items():
        table.add_row(name, text(value or "-"))
    for name, value in _sometimes(found).items():
        if value:
            table.add_row(name, text(value))
    return table


def _sometimes(found: dict[str, Any]) -> dict[str, str]:
    """Facts that not every cell has; "" = none."""
    drain = found["drain"]
    said = ""
    if drain is not None:
        said = f"{drain['cause']} ({drain['requested_by']}), {drain['remaining_s']:.0f} s left"
    return {
        "marks": marks(found["cell"]),
        "drain": said,
        "labels": ", ".join(f"{key}={value}" for key, value in sorted(found["labels"].items())),
        "requests": ", ".join(f"{count} {kind}" for kind, count in found["cell"]["requests"].items()),
    }


def _signals(one: dict[str, Any]) -> Table:
    table = Table(("signal", "value", "contribution"), right=("value", "contribution"))
    for name, value in one["signals"].items():
        table.add_row(name, figure(value), figure(one["contributions"].get(name), "{:.4f}"))
    return table


def _reports(found: dict[str, Any]) -> Table:
    table = Table(
        ("gateway saw", "requests", "in progress", "first byte p50", "p95", "whole p50", "whole p95"),
        right=("in progress", "first byte p50", "p95", "whole p50", "whole p95"),
        wrap=("requests",),
    )
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
    table = Table(("at", "from", "to", "event", "cause"), wrap=("event", "cause"), moments=("at",))
    for each in found["history"]:
        table.add_row(*(text(each[key]) for key in ("at", "from", "to", "event", "cause")))
    return table
