"""The figures of a run over real engines, and the conditions under which it counts as working."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_lab.demo.observe import History, Sample
from headrace_lab.demo.result import Check
from headrace_lab.load.records import Record

LAST_S = 20.0
LONG_SHARE = 0.03
LONG_LEAST = 150
NEEDED_SIGNALS = ("kv_fill", "queue_depth")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found; None = could not be measured.

    `refused` are 400s from the small engine, which it must give to too-long prompts; `failed` is
    everything else that went wrong. `engine_400s` is the small engine's own count of 4xx.
    """

    long_sent: int
    long_share_last: float | None
    refused: int
    failed: int
    engine_400s: float | None
    error_rate_seen: float | None
    weight_start: int
    weight_end: int
    incomplete: tuple[str, ...]
    nacks: float | None


def is_refusal(record: Record, small: str) -> bool:
    """True for a too-long prompt that the small engine answered with 400."""
    return record.status == 400 and record.cell == small and record.kind == "long"


def long_share(records: Sequence[Record], small: str, since_s: float) -> float | None:
    """The small engine's share, 0 … 1, of the too-long prompts sent from `since_s` on."""
    cells = [r.cell for r in records if r.kind == "long" and r.sent_s >= since_s and r.cell]
    return cells.count(small) / len(cells) if cells else None


def error_rate_seen(history: History, small: str) -> float | None:
    """The highest error rate that the controller had from the small engine's agent."""
    views = [view for sample in history.samples if (view := sample.cells.get(small)) is not None]
    rates = [
        rate
        for view in views
        for rate in (view.signals.get("error_rate"), view.error_rate)
        if rate is not None
    ]
    return max(rates, default=None)


def incomplete(sample: Sample | None, cells: Sequence[str]) -> tuple[str, ...]:
    """What the controller lacks of real engines: a cell that is not READY, a signal, a pressure."""
    if sample is None:
        return ("the controller never answered",)
    lacks = []
    for cell in cells:
        view = sample.cells.get(cell)
        if view is None:
            lacks.append(f"{cell}: unknown")
            continue
        if view.state != "READY":
            lacks.append(f"{cell}: {view.state}")
        if view.pressure is None or view.weight < 1:
            lacks.append(f"{cell}: no pressure or weight")
        lacks += [f"{cell}: no {name}" for name in NEEDED_SIGNALS if view.signals.get(name) is None]
    return tuple(lacks)


def checks(outcome: Outcome) -> list[Check]:
    """Each condition for success."""
    share, rate = outcome.long_share_last, outcome.error_rate_seen
    return [
        Check(
            "states, signals and weights come from the engines",
            not outcome.incomplete,
            "; ".join(outcome.incomplete) or "all there",
            f"READY, with {', '.join(NEEDED_SIGNALS)}, pressure and weight",
        ),
        Check(
            "too-long prompts sent",
            outcome.long_sent >= LONG_LEAST,
            str(outcome.long_sent),
            f"at least {LONG_LEAST}",
        ),
        Check(
            "the small engine's 400s are seen",
            outcome.refused > 0 and rate is not None and rate > 0,
            f"{outcome.refused} sent back, error rate up to {0.0 if rate is None else rate:.0%}",
            "an error rate above 0",
        ),
        Check(
            "the small engine's weight falls",
            outcome.weight_end < outcome.weight_start,
            f"{outcome.weight_start} to {outcome.weight_end}",
            "down",
        ),
        Check(
            f"its share of too-long prompts, last {LAST_S:.0f} s",
            share is not None and share <= LONG_SHARE,
            "none was sent" if share is None else f"{share:.1%}",
            f"at most {LONG_SHARE:.0%} (33 % under round-robin)",
        ),
        Check("other failed requests", outcome.failed == 0, str(outcome.failed), "0"),
    ]


def as_figures(outcome: Outcome) -> dict[str, float | None]:
    """The outcome as figures of the result file; `small_400s_seen_by_agent` is 1 or 0."""
    rate = outcome.error_rate_seen
    return {
        "long_share_small_last20": outcome.long_share_last,
        "long_sent": outcome.long_sent,
        "small_400s": outcome.refused,
        "small_400s_counted_by_engine": outcome.engine_400s,
        "small_400s_seen_by_agent": float(rate is not None and rate > 0),
        "small_error_rate_max": rate,
        "small_weight_start": outcome.weight_start,
        "small_weight_end": outcome.weight_end,
        "other_failures": outcome.failed,
        "xds_nacks": outcome.nacks,
    }
