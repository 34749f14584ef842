"""The result files of a directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMS = "*.json"
UNKNOWN = "not noted"


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


def newest(
    results: Sequence[Result], scenario: str, mode: str, kind: str = "", variant: str = ""
) -> Result | None:
    """The last made of the trustworthy results of a scenario, mode and variant; `kind` "" = any. A quick
    one counts only where there is no other."""
    fitting = [
        each
        for each in results
        if each.worked
        and (each.scenario, each.mode, each.variant) == (scenario, mode, variant)
        and (not kind or each.kind == kind)
    ]
    return max(fitting, key=lambda each: (not each.data.get("quick"), each.date), default=None)
