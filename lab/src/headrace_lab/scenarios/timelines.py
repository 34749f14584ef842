"""Time lines: when faults happen, and how much stress a GPU is under."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace_shared.config import Settings

Target = Literal["engine", "node", "site"]
Effect = Literal["exit", "hang", "dark", "reload"]


class FaultKind(Settings):
    """One kind of fault.

    `target` says what is struck: one engine, one GPU host with its cells, agent and exporter, or
    a whole site. `effect`: `exit` ends the engine's process as SIGKILL does (its port refuses),
    `hang` keeps connections open and answers nothing, `dark` passes no packet any more and closes
    nothing, `reload` is `exit` followed by a start that answers 503 for `loading_s`.
    """

    note: str = ""
    target: Target
    effect: Effect
    repair_s: float = Field(gt=0, le=3600)
    """Seconds from the fault to its repair."""
    loading_s: float = Field(gt=0, le=3600)
    """Seconds that an engine loads after its start."""
    every_s: float = Field(0.0, ge=0, le=86_400)
    """Least seconds from one fault to the next, 0 = as the scenario has it."""


class FaultTimes(Settings):
    """When faults come: the first at `first_s`, then every `every_s`, `count` in all.

    What is sent in the `window_s` after a fault counts as sent after it; `least` is how many
    faults a figure needs.
    """

    first_s: float = Field(gt=0, le=86_400)
    every_s: float = Field(gt=0, le=86_400)
    count: int = Field(ge=1, le=10_000)
    window_s: float = Field(gt=0, le=3600)
    least: int = Field(ge=1, le=10_000)

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.window_s > self.every_s:
            raise ValueError("window_s is longer than every_s; the windows of two faults would overlap")
        return self

    def spaced(self, every_s: float) -> FaultTimes:
        """The same faults, at least `every_s` apart."""
        return self.model_copy(update={"every_s": max(self.every_s, every_s)})

    @property
    def over_s(self) -> float:
        """When the last one's window ends, and a gap like those between them has passed."""
        return self.first_s + self.count * self.every_s + self.window_s

    def times(self, seconds: float) -> list[float]:
        """The moments of the faults whose windows end within a load of `seconds`."""
        planned = [self.first_s + i * self.every_s for i in range(self.count)]
        return [at for at in planned if at + self.window_s <= seconds]


class StressPoint(Settings):
    """From `at_s` on: `heat_w` is power that a foreign load turns into heat in the GPU beside the
    engine's own; `pcie_contention` is the share of the host link that it takes; `cooling` is the share
    of the GPU's cooling that is left."""

    at_s: float = Field(ge=0, le=86_400)
    heat_w: float = Field(0.0, ge=0, le=10_000)
    pcie_contention: float = Field(0.0, ge=0, lt=1)
    cooling: float = Field(1.0, gt=0, le=1)


class Stress(Settings):
    """A stress time line; each point holds until the next."""

    note: str = ""
    points: tuple[StressPoint, ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        times = [point.at_s for point in self.points]
        if times != sorted(set(times)):
            raise ValueError("points: at_s must rise from one entry to the next")
        return self

    def at(self, at_s: float) -> StressPoint:
        """The stress in force; none before the first point."""
        current = StressPoint(at_s=0.0)
        for point in self.points:
            if point.at_s > at_s:
                break
            current = point
        return current
