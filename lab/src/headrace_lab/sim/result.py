"""The result of a simulation: one JSON, and the raw records beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace_lab.demo.result import environment, records_path, tidy
from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import Figures
from headrace_lab.load.summary import arm as summary
from headrace_lab.sim.run import SimRun
from headrace_shared.clock import Clock


def as_json(
    ask: Ask, runs: Sequence[SimRun], figures: Figures, more: dict[str, Any], clock: Clock
) -> dict[str, Any]:
    """The file's content; figures that do not exist are null."""
    cells = [plan.id for plan in ask.fleet.plans]
    return {
        "scenario": ask.name,
        "mode": "sim",
        "seed": ask.seed,
        "seconds": ask.seconds,
        "rps": ask.rps,
        "load": ask.load_name,
        "variant": ask.options.variant,
        "kind": ask.kind,
        **({"settings": dict(ask.options.settings)} if ask.options.settings else {}),
        "scenario_file_version": ask.catalogue.version,
        "fleet": [
            {
                "site": plan.site,
                "cell": plan.id,
                "gpu": plan.gpu,
                "model": plan.model,
                "speed": plan.speed,
                "pcie_contention": plan.pcie_contention,
                "max_model_len": plan.max_model_len,
                "refuse_share": plan.refuse_share,
            }
            for plan in ask.fleet.plans
        ],
        "arms": {label(run): summary(run.seen.records, cells) for run in runs},
        "figures": {name: tidy(value) for name, value in figures.items()},
        "faults": {label(run): [f.as_json() for f in run.seen.faults] for run in runs if run.seen.faults},
        **_without_nan(more),
        "environment": environment(clock),
    }


def label(run: SimRun) -> str:
    """An arm as results name it, with its condition where there are several."""
    return f"{run.arm}.{run.seen.condition}" if run.seen.condition else run.arm


def write(path: Path, data: dict[str, Any], runs: Sequence[SimRun]) -> None:
    """Write the result and the records of all its runs. Raises OSError."""
    with records_path(path).open("w", encoding="utf-8") as file:
        for run in runs:
            for record in sorted(run.seen.records, key=lambda r: r.id):
                line = {"arm": run.arm, "condition": run.seen.condition, **record.as_json()}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _without_nan(value: Any) -> Any:
    """JSON has no word for what is no number."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
