"""What a check found: how grave, about what, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Level(Enum):
    """OK: as it should be. WARN: works, with less than there could be. ERROR: does not work."""

    OK = "ok"
    WARN = "warn"
    ERROR = "error"


_ORDER: Final = {level: place for place, level in enumerate((Level.ERROR, Level.WARN, Level.OK))}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: `about` names the source, `what` is the case, `remedy` mends it."""

    level: Level
    about: str
    what: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"level": self.level.value, "about": self.about, "what": self.what, "remedy": self.remedy}


def ok(about: str, what: str) -> Finding:
    return Finding(Level.OK, about, what)


def warn(about: str, what: str, remedy: str = "") -> Finding:
    return Finding(Level.WARN, about, what, remedy)


def error(about: str, what: str, remedy: str = "") -> Finding:
    return Finding(Level.ERROR, about, what, remedy)


def arrange(findings: Iterable[Finding]) -> list[Finding]:
    """The gravest first, otherwise in the order they came."""
    return sorted(findings, key=lambda each: _ORDER[each.level])


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """What is the same of several things, said once of all of them."""
    together: dict[tuple[Level, str, str], list[str]] = {}
    for each in findings:
        abouts = together.setdefault((each.level, each.what, each.remedy), [])
        if each.about not in abouts:
            abouts.append(each.about)
    return [
        Finding(level, ", ".join(abouts), what, remedy) for (level, what, remedy), abouts in together.items()
    ]


def gravest(findings: Sequence[Finding]) -> Level:
    """The gravest level found; OK where nothing was."""
    return min((each.level for each in findings), key=lambda level: _ORDER[level], default=Level.OK)
