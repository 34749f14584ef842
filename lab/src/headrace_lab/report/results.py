"""The result files of a directory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace_lab.scenarios import packaged
from headrace_lab.scenarios.settings import Scenario

FORMS = "*.json"
UNKNOWN = "not noted"
ON_TIME = "requests sent on time (P99)"
TOO_LATE_MS = 250.0
"""A driver that is later than this measures the machine that it runs on."""


@dataclass(frozen=True, slots=True)
class Result:
    """One result file. `figures` leaves out those that the file has as null; `data` is the whole of it."""

    path: Path
    scenario: str
    mode: str
    kind: str = ""
    variant: str = ""
    load: str = ""
    seed: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    arms: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For people: scenario, kind or variant, load."""
        parts = [self.scenario, self.kind, self.variant, self.load]
        return " ".join(dict.fromkeys(part for part in parts if part))

    @property
    def environment(self) -> dict[str, Any]:
        """Command, cores, machine, versions, date, as far as the file has them."""
        found = self.data.get("environment")
        return found if isinstance(found, dict) else {}

    @property
    def command(self) -> str:
        """What made it."""
        return str(self.environment.get("command", UNKNOWN))

    @property
    def date(self) -> str:
        """When it was made; "" where the file does not tell."""
        return str(self.environment.get("date", ""))

    @property
    def rps(self) -> float:
        """Requests a second: those of the comparison where rates were searched for; 0 = not told."""
        rate = self.figure("below_saturation_rps") or self.data.get("rps")
        return float(rate) if isinstance(rate, int | float) else 0.0

    @property
    def size(self) -> str:
        """How much it was made from, for people: faults, or requests, of the arm with the fewest."""
        faults = [value for name, value in self.figures.items() if name.startswith("faults.")]
        if faults:
            return f"{min(faults):g} faults an arm"
        if (stresses := self.figure("stresses")) is not None:
            return f"{stresses:g} stresses"
        requests = [
            arm["requests"]
            for arm in self.arms.values()
            if isinstance(arm, dict) and isinstance(arm.get("requests"), int)
        ]
        return f"{min(requests):,} requests an arm" if requests else ""

    @property
    def own_load(self) -> bool:
        """Whether it was made with the load that the scenario file gives its scenario, or variant of it."""
        plan = self._plan
        if plan is None or not self.load:
            return True
        variant = plan.variants.get(self.variant)
        return self.load == ((variant.load if variant else None) or plan.load)

    @property
    def whole(self) -> bool:
        """False where it is a quick one, or shorter, or of fewer faults than the scenario file asks for."""
        plan, seconds = self._plan, self.data.get("seconds")
        if self.data.get("quick") or plan is None or not isinstance(seconds, int | float):
            return not self.data.get("quick")
        asked = plan.lead.live.seconds if plan.lead is not None and self.mode == "live" else plan.seconds
        faults = [value for name, value in self.figures.items() if name.startswith("faults.")]
        least = plan.faults.least if plan.faults is not None and faults else 0
        return seconds >= asked and min(faults, default=0.0) >= least

    @property
    def _plan(self) -> Scenario | None:
        return packaged().scenarios.get(self.scenario)

    @property
    def failed_checks(self) -> list[str]:
        """What the run found amiss with its own measurement, enforced or not."""
        checks = self.data.get("checks")
        named = checks.items() if isinstance(checks, dict) else ()
        return [
            f"{name}: {check.get('found', '')}"
            for name, check in named
            if isinstance(check, dict) and check.get("ok") is False
        ]

    @property
    def late_ms(self) -> float:
        """How late the load was sent, P99, of the arm with the worst; 0 where the file does not tell."""
        by_arm = [value for name, value in self.figures.items() if name.startswith("late_p99_ms.")]
        if by_arm:
            return max(by_arm)
        checks = self.data.get("checks")
        check = checks.get(ON_TIME) if isinstance(checks, dict) else None
        said = re.match(r"([\d.]+) ms", str(check.get("found"))) if isinstance(check, dict) else None
        return float(said[1]) if said else 0.0

    @property
    def trusted(self) -> bool:
        """Whether the run can be: it says so, and its load was sent near enough to its time."""
        return self.worked and self.late_ms <= TOO_LATE_MS

    @property
    def notes(self) -> list[str]:
        """What bounds its worth, in its own words."""
        notes = self.data.get("notes")
        return [str(note) for note in notes] if isinstance(notes, list) else []

    @property
    def worked(self) -> bool:
        """False where the run says itself that it cannot be trusted."""
        return bool(self.data.get("worked", True))

    def figure(self, name: str) -> float | None:
        """A figure; None where it was not measured."""
        return self.figures.get(name)


def load(directories: Iterable[Path]) -> tuple[list[Result], list[str]]:
    """All results below the directories, in the order of their paths, and what could not be read. JSON
    files that are no results are passed over."""
    found: list[Result] = []
    problems: list[str] = []
    for directory in directories:
        for path in sorted(directory.rglob(FORMS)):
            try:
                data = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                problems.append(f"{path.name}: {type(error).__name__}")
                continue
            if (result := read(path, data)) is not None:
                found.append(result)
    return found, problems


def read(path: Path, data: Any) -> Result | None:
    """A file's content as a result; None where it is none."""
    if not (isinstance(data, dict) and isinstance(data.get("figures"), dict) and data.get("scenario")):
        return None
    numbers = {
        str(name): float(value)
        for name, value in data["figures"].items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    arms = data.get("arms")
    seed = data.get("seed")
    return Result(
        path=path,
        scenario=str(data["scenario"]),
        mode=str(data.get("mode", "")),
        kind=str(data.get("kind") or ""),
        variant=str(data.get("variant") or ""),
        load=str(data.get("load") or ""),
        seed=seed if isinstance(seed, int) else 0,
        figures=numbers,
        arms=arms if isinstance(arms, dict) else {},
        data=data,
    )


def fitting(
    results: Sequence[Result],
    scenario: str,
    mode: str,
    kind: str = "",
    variant: str = "",
    rps: float = 0.0,
) -> list[Result]:
    """The trustworthy results of a scenario with its own load, mode and variant, best first; `kind` "" = any.

    Whole ones come before those that were cut short, then those with the rate `rps` (0 = any), then those
    made last.
    """
    found = [
        each
        for each in results
        if each.trusted
        and each.own_load
        and (each.scenario, each.mode, each.variant) == (scenario, mode, variant)
        and (not kind or each.kind == kind)
    ]
    return sorted(found, key=lambda each: (each.whole, not rps or each.rps == rps, each.date), reverse=True)


def newest(
    results: Sequence[Result], scenario: str, mode: str, kind: str = "", variant: str = ""
) -> Result | None:
    """The first of `fitting`."""
    return next(iter(fitting(results, scenario, mode, kind, variant)), None)
