"""The matrix's files: rows as CSV; rows, lines and figures as JSON; pictures."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from headrace_lab.demo.result import environment, tidy
from headrace_lab.matrix import bound, summary, tails
from headrace_lab.matrix.summary import Line
from headrace_lab.matrix.tails import Tail
from headrace_lab.matrix.work import Row
from headrace_lab.plots import bars
from headrace_lab.plots.bars import Bar, Group
from headrace_lab.scenarios import packaged
from headrace_shared.clock import Clock


@dataclass(frozen=True, slots=True)
class Matrix:
    """Everything that a fleet's matrix found. `bounds` are requests per second by load, NaN = none is known;
    `more` goes into the JSON as it is."""

    fleet: str
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]
    tails: tuple[Tail, ...]
    bounds: Mapping[str, float]
    margin: float
    more: dict[str, Any]

    def figures(self) -> dict[str, float]:
        """All figures by name."""
        return (
            summary.figures(self.lines, self.margin)
            | tails.figures(self.tails, self.margin)
            | bound.figures(self.bounds, self.lines)
        )


def write(out: Path, found: Matrix, clock: Clock) -> None:
    """Write `matrix.FLEET.csv`, `.json` and one `.TIER.svg` a tier into `out`. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"matrix.{found.fleet}"
    with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names = [field.name for field in fields(Row)]
        writer.writerow(names)
        for row in found.rows:
            writer.writerow([getattr(row, each) for each in names])
    data = {
        "scenario": scenario(found),
        "mode": "sim",
        **found.more,
        "figures": {each: tidy(value) for each, value in found.figures().items()},
        "lines": [_finite(asdict(line)) for line in found.lines],
        "tails": [_finite(asdict(tail)) for tail in found.tails],
        "rows": [_finite(asdict(row)) for row in found.rows],
        "environment": environment(clock),
    }
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    for tier in dict.fromkeys(line.tier for line in found.lines):
        (out / f"{name}.{tier}.svg").write_text(picture(found.fleet, tier, found.lines), encoding="utf-8")


def scenario(found: Matrix) -> str:
    """The name that results go by: of a choice of loads another one than of the file's."""
    loads = dict.fromkeys(line.load for line in found.lines)
    whole = found.more.get("quick") or set(packaged().matrix_loads) <= set(loads)
    return f"matrix/{found.fleet}" if whole else f"matrix/{found.fleet} ({', '.join(loads)})"


def picture(fleet: str, tier: str, lines: Sequence[Line]) -> str:
    """Sustainable rates against round-robin's, a group of bars for each load."""
    own = [line for line in lines if line.tier == tier]
    arms = list(dict.fromkeys(line.arm for line in own))
    groups = []
    for load in dict.fromkeys(line.load for line in own):
        at = {line.arm: line.vs_rr for line in own if line.load == load}
        shown = [at.get(arm) for arm in arms]
        groups.append(
            Group(
                load,
                [Bar(math.nan) if each is None else Bar(each.value, each.low, each.high) for each in shown],
            )
        )
    title = f"Sustainable RPS on {fleet}, {tier} SLO, as a ratio to round-robin (simulated)"
    return bars.draw(title, "ratio to rr", arms, groups, mark=1.0)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
