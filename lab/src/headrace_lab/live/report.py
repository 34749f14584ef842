"""What a live run says to people."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from headrace_lab.demo.display import number, say
from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import Figures
from headrace_lab.live.outcome import Outcome
from headrace_lab.tables import new_table


def notes(ask: Ask) -> list[str]:
    """What bounds the worth of a run, in words."""
    found = []
    if ask.fault is not None and ask.fault.effect == "dark":
        found.append(
            "a dark node or site is played by stopping its programs: the kernel still accepts "
            "connections to them, which never answer; a path that drops packets refuses none either"
        )
    if (plan := ask.scenario.lead) is not None:
        faster = plan.reference_time_constant_s / plan.live.time_constant_s
        found.append(
            f"stresses run {faster:g} times faster than their time lines, with a thermal time constant of "
            f"{plan.live.time_constant_s:g} s; leads at the reference constant come from the simulator"
        )
    return [*found, *few_faults(ask)]


def few_faults(ask: Ask) -> list[str]:
    """A word where fewer faults fit into the load than a claim needs."""
    planned = len(ask.faults.times(ask.seconds)) if ask.faults is not None else 0
    if ask.faults is None or planned >= ask.faults.least:
        return []
    return [
        f"{planned} faults fit into {ask.seconds:g} s, and the figures want {ask.faults.least}: "
        "a longer run is needed for a claim"
    ]


def findings(ask: Ask, figures: Figures) -> list[str]:
    """What the figures mean, where they do not say it themselves."""
    found = []
    spread = figures.get("ttft_p99_spread")
    if spread is not None:
        found.append(
            f"{ask.rps:g} RPS are more than any arm can carry, where all arms should meet: the P99 TTFT "
            f"of the slowest is {100 * spread:.1f} % above that of the fastest, of what was answered"
        )
    if any(name.startswith("leak.") for name in figures):
        found.append(
            "TTFT is that of good answers: an arm that has long prompts refused answers fewer of them, and "
            "looks faster for it"
        )
    for name, bursts in figures.items():
        arm = name.removeprefix("bursts.")
        seen = figures.get(f"reactions_seen.{arm}")
        if arm != name and bursts and seen is not None and seen < bursts:
            found.append(
                f"arm {arm}: weights answered {seen:g} of {bursts:g} bursts, so there is no P95 of it"
            )
    return found


def show(console: Console, outcome: Outcome) -> None:
    """Print the arms, the figures, the checks and the notes."""
    table = new_table(
        f"{outcome.ask.name}, {outcome.ask.load_name} at {outcome.ask.rps:g} rps",
        left=("arm",),
        right=("requests", "good", "TTFT p50 ms", "p95", "p99"),
    )
    data = outcome.as_json({})
    for name, arm in data["arms"].items():
        ttft = arm["ttft_ms"]
        cells = [number(ttft[q]) for q in ("p50", "p95", "p99")]
        table.add_row(name, str(arm["requests"]), number(arm["success_rate"], ".2%"), *cells)
    console.print(table)
    figures = new_table(left=("figure",), right=("value",))
    for name, value in data["figures"].items():
        figures.add_row(name, number(value, ".5g"))
    console.print(figures)
    for check in outcome.checks:
        if not check.ok:
            style = "red" if check.enforced else "yellow"
            console.print(Text(f"{check.name}: {check.found}, wanted {check.wanted}", style=style))
    for note in outcome.notes:
        say(console, f"note: {note}")
