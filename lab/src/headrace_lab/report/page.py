"""What the report says, before it is HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_lab.demo.display import number
from headrace_lab.report.nothing import sentences
from headrace_lab.report.pictures import pictures
from headrace_lab.report.published import CITATION
from headrace_lab.report.results import Result
from headrace_lab.report.rows import COLUMNS, Row, rows

ABSENT = "-"
PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts; `code` are the columns that hold commands."""

    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    code: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG with its title."""

    title: str
    svg: str


@dataclass(frozen=True, slots=True)
class Listed:
    """Sentences, one a point."""

    items: tuple[str, ...]


Block = str | Table | Picture | Listed


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it; `folded` = of interest to few."""

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False


def page(results: Sequence[Result], problems: Sequence[str], out: str) -> list[Section]:
    """The whole report; `out` is the directory that commands for what is missing write to."""
    found = rows(results, out)
    missing = [row for row in found if row.missing]
    shown = [Picture(title, svg) for title, svg in pictures(results).items()]
    return [
        Section("Published figures and ours", (CITATION, _main(found), *_notes(found))),
        Section("Pictures", tuple(shown) or ("No result here has anything to draw.",)),
        Section("Where weights gain nothing", _nothing(results)),
        Section("What is missing", (_missing(missing),) if missing else ("Nothing.",)),
        Section("How each number was made", (_made(results), *_unread(problems))),
        *(_of_result(result) for result in results),
    ]


def readme_table(results: Sequence[Result], out: str) -> Table:
    """The short table: the chief figures that were measured."""
    found = [row for row in rows(results, out) if row.short and not row.missing]
    body = [
        (row.what, row.theirs, _cell(row, "rr"), _cell(row, "weights"), _cell(row, "headrace"), row.mode)
        for row in found
    ]
    return Table(("what", "published", "rr here", "weights", "headrace", "how"), tuple(body))


def _cell(row: Row, column: str) -> str:
    return row.found.get(column, ABSENT)


def _main(found: Sequence[Row]) -> Table:
    columns = [column for column in COLUMNS if any(column in row.found for row in found)]
    body = [
        (row.what, row.theirs, row.plain, *(_cell(row, c) for c in columns), row.mode or "missing")
        for row in found
    ]
    return Table(("what", "published", "rr / lr there", *columns, "how"), tuple(body))


def _notes(found: Sequence[Row]) -> list[Block]:
    notes = dict.fromkeys(f"{row.what}: {row.note}." for row in found if row.note)
    return [Listed(tuple(notes))] if notes else []


def _nothing(results: Sequence[Result]) -> tuple[Block, ...]:
    always = (
        "Weights cannot make capacity, only place load. On equal cells with no fault, no change of network "
        "and no request that a cell must refuse, there is nothing to place better: even turns are then close "
        "to the best there is, and each change of weights disturbs them."
    )
    found = sentences(results)
    if not found:
        return (always, "No result here tells by how much; the matrix, saturation and jitter would.")
    return (always, Listed(tuple(found)))


def _missing(found: Sequence[Row]) -> Table:
    commands: dict[str, list[str]] = {}
    for row in found:
        commands.setdefault(row.command, []).append(row.what)
    return Table(("what", "command"), tuple(("; ".join(what), each) for each, what in commands.items()), (1,))


def _made(results: Sequence[Result]) -> Table:
    body = []
    for each in results:
        environment = each.environment
        versions = environment.get("versions")
        told = ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else ""
        if not told.startswith("python") and environment.get("python"):
            told = f"python {environment['python']}, {told}"
        machine = f"{environment.get('cores', '?')} cores {environment.get('machine', '')}".strip()
        trust = "" if each.worked else " (not to be trusted, says the run)"
        body.append(
            (
                each.path.name + trust,
                each.name,
                each.mode,
                str(each.seed),
                machine,
                told,
                each.date,
                each.command,
            )
        )
    head = ("file", "scenario", "mode", "seed", "machine", "versions", "date", "command")
    return Table(head, tuple(body), (7,))


def _unread(problems: Sequence[str]) -> list[Block]:
    if not problems:
        return []
    return ["Files that could not be read:", Listed(tuple(problems[:PROBLEMS]))]


def _of_result(result: Result) -> Section:
    """All that one result holds."""
    blocks: list[Block] = []
    arms = [
        (
            name,
            str(arm.get("requests", ABSENT)),
            number(arm.get("success_rate"), ".4f"),
            *(number(arm.get("ttft_ms", {}).get(q), ".0f") for q in ("p50", "p95", "p99")),
            number(arm.get("e2e_ms", {}).get("p95"), ".0f"),
        )
        for name, arm in result.arms.items()
        if isinstance(arm, dict)
    ]
    if arms:
        head = ("arm", "requests", "success", "TTFT p50 ms", "p95", "p99", "e2e p95 ms")
        blocks.append(Table(head, tuple(arms)))
    figures = tuple((name, f"{value:.5g}") for name, value in result.figures.items())
    blocks.append(Table(("figure", "value"), figures))
    notes = result.data.get("notes")
    if isinstance(notes, list) and notes:
        blocks.append(Listed(tuple(str(note) for note in notes)))
    return Section(f"{result.name} ({result.mode}, {result.path.name})", tuple(blocks), folded=True)
