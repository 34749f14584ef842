"""What the interactive screen says, and how its lines stand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace_controller.operator_cli.terminal import clean
from headrace_controller.operator_cli.top.rows import Row, SiteLine


def stale(age_s: float | None, why: str) -> str:
    """That the figures are old, or (no age) that there are none; `why` "" = nothing answers in time."""
    why = clean(why or "the controller does not answer in time")
    if age_s is None:
        return f"no figures yet: {why}; trying again"
    return f"STALE: figures of {age_s:.0f} s ago; {why}; trying again"


def about(row: Row) -> str:
    """One cell in a line."""
    said = f"{row.id} at {row.site}: {row.state} for {row.since_s:.0f} s"
    said += f" ({row.cause})" if row.cause else ""
    return said + (f"; {row.marks}" if row.marks else "")


def drain_question(row: Row, rows: Iterable[Row]) -> str:
    """What is asked before a drain, with what it would cost; `rows` are all cells."""
    flight = "" if row.in_flight is None else f"; {row.in_flight} in flight finish"
    question = f"Drain {row.id} at {row.site}? It is {row.state} and gets no new requests{flight}."
    others = {model for each in rows if each.ready and each.id != row.id for model in each.models}
    for model in row.models if row.ready else ():
        if model not in others:
            question += f"\nIt is the last READY cell of {model}: requests for it will get 503."
    return question


def undrain_question(row: Row) -> str:
    """What is asked before a drain is taken back."""
    return f"Take the drain of {row.id} at {row.site} back? It is {row.state}."


def by_site(rows: Iterable[Row], sites: Sequence[SiteLine]) -> list[SiteLine | Row]:
    """Each site's line before its cells; the rows stand by site."""
    known = {site.site: site for site in sites}
    lines: list[SiteLine | Row] = []
    last = None
    for row in rows:
        if row.site != last and row.site in known:
            lines.append(known[row.site])
        last = row.site
        lines.append(row)
    return lines
