"""The result of a live run: one JSON, raw records, and the programs' own metrics beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace_lab.demo.result import Check, environment, records_path, tidy
from headrace_lab.live import figures
from headrace_lab.live.ask import Ask
from headrace_lab.live.figures import Figures
from headrace_lab.live.layout import Layout
from headrace_lab.live.seen import ArmRun
from headrace_lab.load.driver import REFUSED
from headrace_lab.load.summary import arm as summary
from headrace_shared.clock import Clock


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a live run found. `notes` say in words what bounds its worth."""

    ask: Ask
    layout: Layout
    runs: tuple[ArmRun, ...]
    figures: Figures
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()

    @property
    def worked(self) -> bool:
        """True if the run can be trusted; how good its figures are is another question."""
        return all(check.ok or not check.enforced for check in self.checks)

    def as_json(self, environment: Mapping[str, Any]) -> dict[str, Any]:
        """The file's content; figures that do not exist are null."""
        ask, cells = self.ask, list(self.layout.plans)
        return {
            "scenario": ask.name,
            "mode": "live",
            "seed": ask.seed,
            "seconds": ask.seconds,
            "rps": ask.rps,
            "load": ask.load_name,
            "variant": ask.options.variant,
            "kind": ask.kind,
            "scenario_file_version": ask.catalogue.version,
            "fleet": self.layout.as_json(),
            "arms": {_label(run): summary(run.records, cells) for run in self.runs},
            "figures": {name: tidy(value) for name, value in self.figures.items()},
            "faults": {_label(run): [f.as_json() for f in run.faults] for run in self.runs},
            "alerts": {_label(run): [asdict(a) for a in run.alerts] for run in self.runs if run.alerts},
            "metrics": {_label(run): dict(run.metrics) for run in self.runs},
            "worked": self.worked,
            "checks": {check.name: {"ok": check.ok, "found": check.found} for check in self.checks},
            "notes": list(self.notes),
            "environment": dict(environment),
        }


def _label(run: ArmRun) -> str:
    return f"{run.arm}.{run.condition}" if run.condition else run.arm


def trust(runs: Sequence[ArmRun], ask: Ask) -> list[Check]:
    """Checks of the measurement itself: nothing held back, sent on time, sampled without gaps."""
    limit = ask.catalogue.counting.gap_s
    watched = [run for run in runs if not ask.arms[run.arm].peer]
    gap = max((figures.widest_gap_s(run, ask.seconds, _absences(run)) for run in watched), default=0.0)
    held_back = sum(r.error == REFUSED for run in runs for r in run.records)
    late = figures.quantile([r.late_ms for run in runs for r in run.records], 0.99)
    sent = sum(len(run.records) for run in runs)
    return [
        Check("load was sent", sent > 0, f"{sent} requests", "some"),
        Check("requests held back by the driver", held_back == 0, str(held_back), "0"),
        Check("longest time without a sample", gap <= limit, f"{gap:.1f} s", f"at most {limit:g} s"),
        Check(
            "requests sent on time (P99)",
            late is not None and late <= 50,
            "-" if late is None else f"{late:.1f} ms late",
            "at most 50 ms late",
            enforced=False,
        ),
    ]


def _absences(run: ArmRun) -> list[tuple[float, float]]:
    return [
        (f.at_s, f.repaired_s if f.repaired_s is not None else float("inf"))
        for f in run.faults
        if f.kind == "controller"
    ]


def write(path: Path, outcome: Outcome, clock: Clock, pages: Mapping[str, str]) -> None:
    """Write the result, its records and the metrics pages (by arm). Raises OSError."""
    with records_path(path).open("w", encoding="utf-8") as file:
        for run in outcome.runs:
            for record in sorted(run.records, key=lambda r: r.id):
                line = {"arm": run.arm, "condition": run.condition, **record.as_json()}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    for name, page in pages.items():
        path.with_name(f"{path.stem}.{name}.metrics.txt").write_text(page, encoding="utf-8")
    data = outcome.as_json(environment(clock))
    text = json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
