"""What a live run leaves behind, on the time line of its load; the figures are made from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from headrace_lab.demo.observe import Sample
from headrace_lab.load.records import Record


@dataclass(frozen=True, slots=True)
class FaultSeen:
    """One fault. Times in seconds from the start of the load; None = it did not happen.

    `gone_s`: the last struck endpoint had left Envoy's list. `shunned_s`: Envoy held it but had
    marked it unhealthy, which is all that a plain Envoy can do. `noticed_s`: the controller said
    so (a fallback in force, a state), where the scenario asks for that.
    """

    kind: str
    cells: tuple[str, ...]
    at_s: float
    gone_s: float | None = None
    shunned_s: float | None = None
    noticed_s: float | None = None
    repaired_s: float | None = None

    @property
    def detect_ms(self) -> float | None:
        """From the fault to the endpoints gone from Envoy's list."""
        return None if self.gone_s is None else (self.gone_s - self.at_s) * 1e3

    @property
    def notice_ms(self) -> float | None:
        """From the fault to the controller saying so."""
        return None if self.noticed_s is None else (self.noticed_s - self.at_s) * 1e3

    def as_json(self) -> dict[str, Any]:
        """As plain data, times rounded to a tenth of a millisecond."""
        data = asdict(self)
        return {key: round(v, 4) if isinstance(v, float) else v for key, v in data.items()}


@dataclass(frozen=True, slots=True)
class Alert:
    """An early warning for a cell that began `at_s` seconds after the start of the load."""

    cell: str
    at_s: float
    said: str


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One arm's run. `samples` are the controller's views, `start` the load's start on their clock.

    `unloaded_ms` are the times to first token of the same load at the unloaded rate, where a scenario
    measures them before; `alerts` the early warnings.
    """

    arm: str
    records: tuple[Record, ...]
    start: float
    faults: tuple[FaultSeen, ...] = ()
    samples: tuple[Sample, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    condition: str = ""
    alerts: tuple[Alert, ...] = ()
    unloaded_ms: tuple[float, ...] = ()
