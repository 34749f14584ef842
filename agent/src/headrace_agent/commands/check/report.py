"""What a check found, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.table import Table

from headrace_agent.collectors.readings import HardwareSource, PathMethod
from headrace_agent.commands.check.engines import ENGINE_SIGNALS
from headrace_agent.commands.check.findings import Finding, Level, gravest, merge
from headrace_agent.commands.check.observe import Observation, SeenCell
from headrace_agent.commands.console import plain, signal_table
from headrace_agent.settings import without_secrets
from headrace_shared.signals import GPU_SIGNALS, NAMES

_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.ERROR: "bold red"}


@dataclass(frozen=True, slots=True)
class CellTable:
    """One cell's ten signals: figure, source and age in seconds by catalogue name."""

    signals: Mapping[str, float]
    source: Mapping[str, str]
    age_s: Mapping[str, float]


def tabulate(seen: SeenCell, observation: Observation) -> CellTable:
    """One cell's signals; of several paths the worst figure counts."""
    engine, hardware, now = seen.engine, seen.hardware, observation.now
    signals = {name: engine.signals[name] for name in ENGINE_SIGNALS if name in engine.signals}
    source = dict.fromkeys(signals, "engine page")
    age_s = {} if engine.source.read_at is None else dict.fromkeys(signals, now - engine.source.read_at)
    if hardware.source is not HardwareSource.NONE:
        read_at = next((s.read_at for s in hardware.sources if s.name == hardware.source.value), None)
        given = {name: hardware.signals[name] for name in GPU_SIGNALS if name in hardware.signals}
        signals |= given
        source |= dict.fromkeys(given, hardware.source.value)
        age_s |= {} if read_at is None else dict.fromkeys(given, now - read_at)
    for path in observation.paths:
        way = "icmp" if path.method is PathMethod.ICMP else "tcp connect"
        for name, value in (("rtt_ms", path.rtt_ms), ("jitter_ms", path.jitter_ms)):
            if value is None or value < signals.get(name, 0.0):
                continue
            signals[name], source[name] = value, f"{way} to {path.gateway}"
            if path.measured_at is not None:
                age_s[name] = now - path.measured_at
    return CellTable(signals, source, age_s)


def as_json(observation: Observation, findings: Sequence[Finding]) -> dict[str, Any]:
    """The whole report; signals that were not measured are null."""
    return {
        "status": gravest(findings).value,
        "cells": [_cell_json(seen, observation) for seen in observation.cells],
        "findings": [each.as_json() for each in findings],
    }


def _cell_json(seen: SeenCell, observation: Observation) -> dict[str, Any]:
    table, facts = tabulate(seen, observation), seen.engine.facts
    return {
        "id": seen.cell.id,
        "url": without_secrets(seen.cell.url),
        "address": str(seen.cell.address),
        "state": seen.engine.state.value if seen.seen else None,
        "cause": seen.cause,
        "kind": facts.kind or None,
        "version": facts.version or None,
        "models": [{"id": each.id, "max_model_len": each.max_model_len} for each in facts.models],
        "hardware_source": seen.hardware.source.value,
        "signals": {name: table.signals.get(name) for name in NAMES},
        "source": dict(table.source),
        "age_s": {name: round(age, 3) for name, age in table.age_s.items()},
    }


def show(out: Console, observation: Observation, findings: Sequence[Finding]) -> None:
    """The cells' signals, then what was found, the gravest last: it is what stays in sight."""
    for seen in observation.cells:
        table = tabulate(seen, observation)
        state = seen.engine.state.value if seen.seen else "no sign of it"
        out.print(plain(f"cell {seen.cell.id} at {without_secrets(seen.cell.url)}: {state}", "bold"))
        out.print(signal_table(table.signals, table.source, table.age_s))
    said = merge(findings)
    for each in reversed(said):
        out.print(_line(each))
    out.print(_verdict(said))


def _line(finding: Finding) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    line.add_row(
        plain(f"{finding.level.value:<5}", _STYLES[finding.level]), plain(f"{finding.about}: {finding.what}")
    )
    if finding.remedy:
        line.add_row("", plain(f"→ {finding.remedy}", "cyan"))
    return line


def _verdict(findings: Sequence[Finding]) -> RenderableType:
    count = {level: sum(each.level is level for each in findings) for level in Level}
    level = gravest(findings)
    words = f"{count[Level.OK]} ok, {count[Level.WARN]} warnings, {count[Level.ERROR]} errors"
    return plain(words, _STYLES[level])
