"""What was taken from a page, whatever page it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace_shared.signals import NAMES

UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class PageOutcome:
    """`kind` is "" where the page is no known engine's. `signals`: catalogue name -> figure, absent or
    None where the page does not give it; `source`: catalogue name -> metric that it was read from."""

    kind: str
    signals: Mapping[str, float | None]
    source: Mapping[str, str]
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """All ten signals by name, null where there is no figure."""
        return {
            "kind": self.kind or UNKNOWN,
            "signals": {name: self.signals.get(name) for name in NAMES},
            "source": {name: self.source[name] for name in NAMES if name in self.source},
            "warnings": list(self.warnings),
        }
