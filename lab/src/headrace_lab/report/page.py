"""What the report says, before it is HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_lab.demo.display import number
from headrace_lab.report.nothing import sentences
from headrace_lab.report.pictures import pictures
from headrace_lab.report.published import CITATION
from headrace_lab.report.results import Result
from headrace_lab.report.rows import COLUMNS, Row, further, how, rows, side_by_side, unmeasured_arms

ABSENT = "-"
PROBLEMS = 20
SHORT_COLUMNS = ("rr", "lr", "v3", "weights", "headrace")
COLUMNS_SAID = (
    "rr and lr are Envoy's round-robin and least-request with health checks alone, rr_retries and lr_retries "
    "the same with retries; v2 and v3 weigh by eight and ten signals; weights is this project's default, "
    "headrace adds its picker; oracle knows everything and exists in simulation only; vllm-router and "
    "sglang-router are what a user would take instead. Of several results with the scenario's own load "
    "a whole one counts before one that was cut short, and then the one made last; a further row has the "
    "arms that were run apart from it."
)
WITH_ARMS = (
    "headrace-lab live failover --kind kill --arms rr,{arm},weights --json {out}/failover-kill-{arm}.json"
)
WITH_ARM = {
    "oracle": "headrace-lab sim perturbed --json {out}/perturbed.sim.json",
    "v2": "sudo headrace-lab live jitter --json {out}/jitter.json",
}
"""What runs an arm that no result has."""


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
    published, own = rows(results, out), further(results, out)
    missing = [row for row in (*published, *own) if row.missing]
    shown = [Picture(title, svg) for title, svg in pictures(results).items()]
    return [
        Section("Published figures and ours", (CITATION, COLUMNS_SAID, _main(published), *_notes(published))),
        Section("Figures that nobody published", (_main(own), *_notes(own))),
        Section("Arms side by side at one rate", _beside(results)),
        Section("Pictures", tuple(shown) or ("No result here has anything to draw.",)),
        Section("Where weights gain nothing", _nothing(results)),
        Section("What is missing", _missing(missing, unmeasured_arms([*published, *own]), out)),
        Section("How each number was made", (_made(results), *_said(results), *_unread(problems))),
        *(_of_result(result) for result in results),
    ]


def readme_table(results: Sequence[Result], out: str) -> Table:
    """The short table: the chief figures that were measured."""
    found: dict[str, Row] = {}
    for row in rows(results, out):
        if row.short and row.found:
            found.setdefault(row.what, row)  # live before simulated
    columns = [c for c in SHORT_COLUMNS if any(c in row.found for row in found.values())]
    body = [(row.what, row.theirs, *(_cell(row, c) for c in columns), row.mode) for row in found.values()]
    return Table(("what", "published", *columns, "how"), tuple(body))


def _cell(row: Row, column: str) -> str:
    return row.found.get(column, ABSENT)


def _main(found: Sequence[Row]) -> Block:
    """The rows of published figures, and of others those that were measured."""
    there = [row for row in found if not row.missing or row.published]
    if not there:
        return "No result here has any of them."
    columns = [column for column in COLUMNS if any(column in row.found for row in there)]
    published = any(row.published for row in there)
    body = [
        (
            row.what,
            *((row.theirs, row.plain) if published else ()),
            *(_cell(row, c) for c in columns),
            row.mode or "missing",
            row.source.path.name if row.source is not None else ABSENT,
        )
        for row in there
    ]
    head = ("what", *(("published", "rr / lr there") if published else ()), *columns, "how", "file")
    return Table(head, tuple(body))


def _beside(results: Sequence[Result]) -> tuple[Block, ...]:
    found = side_by_side(results)
    if not found:
        return ("No result here has a fleet at one rate.",)
    columns = [column for column in COLUMNS if any(column in values for _, values in found)]
    body = [
        (result.scenario, how(result), *(values.get(c, ABSENT) for c in columns), result.path.name)
        for result, values in found
    ]
    return ("P95 TTFT of good answers.", Table(("fleet", "how", *columns, "file"), tuple(body)))


def _notes(found: Sequence[Row]) -> list[Block]:
    notes = dict.fromkeys(f"{row.what}: {row.note}." for row in found if row.note and not row.missing)
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


def _missing(found: Sequence[Row], arms: Sequence[str], out: str) -> tuple[Block, ...]:
    commands: dict[str, list[str]] = {}
    for row in found:
        commands.setdefault(row.command, []).append(row.what)
    for arm in arms:
        commands.setdefault(WITH_ARM.get(arm, WITH_ARMS).format(arm=arm, out=out), []).append(f"arm {arm}")
    if not commands:
        return ("Nothing.",)
    body = tuple(("; ".join(what), each) for each, what in commands.items())
    return (Table(("what", "command"), body, (1,)),)


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
        if each.worked and not each.trusted:
            trust = f" (not counted: its load was sent {each.late_ms:.0f} ms late)"
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


def _said(results: Sequence[Result]) -> list[Block]:
    """What the runs say of themselves: checks that failed, and notes."""
    told = [
        f"{result.path.name}: {'; '.join((*result.failed_checks, *result.notes))}."
        for result in results
        if result.failed_checks or result.notes
    ]
    return ["What these runs say of themselves:", Listed(tuple(told))] if told else []


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
    if result.notes:
        blocks.append(Listed(tuple(result.notes)))
    return Section(f"{result.name} ({result.mode}, {result.path.name})", tuple(blocks), folded=True)
