"""The lifecycle for people, generated from the table."""

from __future__ import annotations

from headrace_controller.lifecycle.states import CellState, EventKind
from headrace_controller.lifecycle.table import TRANSITIONS, Branch

_INTRO = """# The life of a cell

Generated from `TRANSITIONS` in `headrace_controller.lifecycle.table`; do not edit.

Only READY cells carry weight. An event that is not listed for a state is illegal there.
"""


def render_table() -> str:
    """Markdown: a mermaid picture of the states, then one table a state."""
    parts = [_INTRO, _picture()]
    parts += [_section(state) for state in CellState]
    return "\n".join(parts)


def _picture() -> str:
    arrows: dict[tuple[str, str], list[str]] = {("[*]", "LOADING"): ["registered"]}
    for (state, event), rule in TRANSITIONS.items():
        for branch in rule.branches:
            if branch.to is not None:
                arrows.setdefault((state.name, branch.to.name), []).append(event.value)
    arrows[("FAILED", "[*]")] = arrows[("TERMINATED", "[*]")] = [EventKind.RETENTION_OVER.value]
    lines = [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


def _section(state: CellState) -> str:
    lines = [f"## {state.name} ({int(state)})", "", "| event | outcome |", "| --- | --- |"]
    for (of, event), rule in TRANSITIONS.items():
        if of is state:
            lines.append(f"| {event.value} | {'; else '.join(map(_outcome, rule.branches))} |")
    return "\n".join([*lines, ""])


def _outcome(branch: Branch) -> str:
    words = [f"→ {branch.to.name}" if branch.to else "stays"]
    words += [_first_line(effect.__doc__) for effect in branch.effects]
    condition = f"if {_first_line(branch.when.__doc__)}: " if branch.when else ""
    return condition + ", ".join(words)


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]
