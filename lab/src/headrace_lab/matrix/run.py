"""Run the matrix on two processes, show it, write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace_lab.demo.display import number, say
from headrace_lab.matrix import pool
from headrace_lab.matrix.bound import prefill_rps
from headrace_lab.matrix.kept import Kept, code_digest
from headrace_lab.matrix.result import Matrix, write
from headrace_lab.matrix.summary import Line, summarise
from headrace_lab.matrix.tails import Tail, tails
from headrace_lab.matrix.work import MIDDLE, Done, Piece, Row
from headrace_lab.scenarios import Catalogue
from headrace_lab.tables import new_table
from headrace_shared.clock import Clock

QUICK_LOADS = ("baseline_mixed", "code_heavy", "rag_multidoc")
SEEDS_APART = 1000


def loads_of(catalogue: Catalogue, quick: bool, traces: bool) -> tuple[str, ...]:
    """The loads that are run where none are named."""
    loads = QUICK_LOADS if quick else catalogue.matrix_loads
    return (*loads, *(catalogue.matrix_traces if traces else ()))


def pieces(catalogue: Catalogue, fleet: str, names: Sequence[str], quick: bool, seed: int) -> list[Piece]:
    """All pieces of a fleet's matrix, of the last load first: by default it takes longest."""
    tiers = (MIDDLE,) if quick else tuple(catalogue.tiers)
    repetitions = 1 if quick else catalogue.counting.repetitions
    return [
        Piece(
            fleet,
            load,
            catalogue.matrix_arms,
            tiers,
            repetition,
            seed + SEEDS_APART * repetition,
            seed,
            quick,
        )
        for load in reversed(names)
        for repetition in range(repetitions)
    ]


def matrix(
    catalogue: Catalogue,
    fleet: str,
    loads: Sequence[str],
    quick: bool,
    seed: int,
    out: Path,
    console: Console,
    clock: Clock,
) -> None:
    """Run a fleet's matrix and write its files into `out`; pieces that an interrupted run left there are
    taken over. Raises OSError."""
    planned = pieces(catalogue, fleet, loads, quick, seed)
    kept = Kept(out / f"matrix.{fleet}.partial.ndjson", code_digest())
    say(console, f"matrix of {fleet}: {len(planned)} pieces on {pool.PROCESSES} processes, in simulation")
    began = clock.now()

    def told(piece: Piece, done: Done, count: int) -> None:
        where = f"{count} of {len(planned)}: {piece.load}, repetition {piece.repetition}"
        say(console, f"{where}: {_told(done.rows)} ({done.cpu_s:.0f} s of CPU)")

    try:
        results = pool.run(planned, kept, told)
    except KeyboardInterrupt:
        say(console, f"interrupted; the same command with --out {out} goes on where this ended")
        raise
    more = {
        "quick": quick,
        "seed": seed,
        "took_s": round(clock.now() - began, 1),
        "cpu_s": round(sum(done.cpu_s for done in results), 1),
    }
    found = assemble(fleet, loads, results, catalogue, more)
    say(console, f"took {more['took_s']:.0f} s, {more['cpu_s']:.0f} s of CPU")
    show(console, found)
    write(out, found, clock)
    kept.drop()
    say(console, f"written to {out}")


def assemble(
    fleet: str, loads: Sequence[str], results: Iterable[Done], catalogue: Catalogue, more: dict[str, Any]
) -> Matrix:
    """All results as one, in the order of the loads."""
    counting = catalogue.counting
    ordered = sorted(results, key=lambda done: (loads.index(done.load), done.repetition))
    rows = tuple(row for done in ordered for row in done.rows)
    lines = summarise(rows, counting.resamples, counting.confidence)
    below = tails([done.below for done in ordered if done.below is not None], counting.confidence)
    plan = catalogue.fleet(catalogue.scenario(fleet).fleet)
    bounds = {load: prefill_rps(plan, catalogue.load(load)) for load in loads}
    return Matrix(fleet, rows, tuple(lines), tuple(below), bounds, counting.margin, more)


def _told(rows: Iterable[Row]) -> str:
    shown = [row for row in rows if row.tier == MIDDLE]
    return ", ".join(f"{row.arm} {number(row.sustainable_rps, '.2f')}" for row in shown) + f" RPS ({MIDDLE})"


def show(console: Console, found: Matrix) -> None:
    """Rates by load and tier, the arms side by side; tails below saturation; what can be claimed."""
    _show_rates(console, found.lines, found.bounds)
    if found.tails:
        _show_tails(console, found.tails)
    for sentence in claims(found):
        console.print(sentence)


def _show_rates(console: Console, lines: Sequence[Line], bounds: Mapping[str, float]) -> None:
    arms = list(dict.fromkeys(line.arm for line in lines))
    right = ("SLO ms", *arms, *(f"{arm} / rr" for arm in arms[1:]), "bound / rr")
    table = new_table(left=("load", "tier"), right=right)
    for load, tier in dict.fromkeys((line.load, line.tier) for line in lines):
        own = {line.arm: line for line in lines if (line.load, line.tier) == (load, tier)}
        first = next(iter(own.values()))
        table.add_row(
            load,
            tier,
            number(first.slo_ms, ".0f"),
            *(number(own[arm].sustainable_rps.value, ".2f") for arm in arms),
            *(_ratio(own[arm]) for arm in arms[1:]),
            number(bounds[load] / own["rr"].sustainable_rps.value, ".2f") if "rr" in own else "",
        )
    console.print(table)


def _ratio(line: Line) -> str:
    mark = "" if line.apart_from_rr else " ~"
    return f"{number(line.vs_rr.value, '.2f')}{mark}"


def _show_tails(console: Console, lines: Sequence[Tail]) -> None:
    arms = list(dict.fromkeys(line.arm for line in lines))
    table = new_table(
        "P99 TTFT below saturation, ms; ratio to the better of rr and lr (upper end of its interval)",
        left=("load",),
        right=("RPS", *arms, *(f"{arm} ratio" for arm in arms if arm not in ("rr", "lr"))),
    )
    for load in dict.fromkeys(line.load for line in lines):
        own = {line.arm: line for line in lines if line.load == load}
        ratios = [own[arm].vs_plain for arm in arms if arm not in ("rr", "lr")]
        table.add_row(
            load,
            number(next(iter(own.values())).rps, ".2f"),
            *(number(own[arm].p99_ms, ".0f") for arm in arms),
            *(f"{number(each.value, '.2f')} ({number(each.high, '.2f')})" for each in ratios),
        )
    console.print(table)


def claims(found: Matrix) -> list[str]:
    """In words, for each arm that is ours: in how many loads it is apart from rr, and in how many it is not
    inferior to the better plain one."""
    figures, margin = found.figures(), f"{found.margin:.0%}"
    arms = [arm for arm in dict.fromkeys(line.arm for line in found.lines) if arm not in ("rr", "oracle")]
    if len({row.repetition for row in found.rows}) < 2:
        return ["One repetition has no interval: nothing is claimed."]
    said = []
    for arm in arms:
        count = figures.get(f"loads.{MIDDLE}.{arm}", 0.0)
        apart = figures.get(f"loads_apart_from_rr.{MIDDLE}.{arm}", 0.0)
        text = f"{arm}, {MIDDLE} tier: interval apart from rr's in {apart:.0f} of {count:.0f} loads"
        if arm != "lr":
            rps = figures.get(f"not_inferior_rps.{MIDDLE}.{arm}", 0.0)
            text += f"; not inferior ({margin}) to the better of rr and lr in {rps:.0f} by sustainable RPS"
            if found.tails:
                text += f", in {figures.get(f'not_inferior_p99.{arm}', 0.0):.0f} by P99 below saturation"
        said.append(text)
    return said
