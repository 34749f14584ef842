"""Networks: the path between the gateway and each site, and how it changes with time."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from headrace_lab.wan.settings import Path
from headrace_shared.config import Name, Settings

JITTER_PER_HALF_WIDTH = 14 / 15
"""Mean |difference| of two round trips, each of two uniform draws, over the draws' half width."""


class PathPlan(Settings):
    """A site's path as round trips, which is what operators measure.

    `rtt_ms` is the mean, `jitter_ms` the mean absolute difference of successive round trips,
    `loss` the share of round trips that are lost. A path that is `down` passes nothing.
    """

    rtt_ms: float = Field(0.0, ge=0, le=10_000)
    jitter_ms: float = Field(0.0, ge=0, le=10_000)
    loss: float = Field(0.0, ge=0, lt=1)
    down: bool = False

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.rtt_ms / 2 < self.jitter_ms / JITTER_PER_HALF_WIDTH:
            least = 2 * self.jitter_ms / JITTER_PER_HALF_WIDTH
            raise ValueError(
                f"rtt_ms {self.rtt_ms:g} leaves no room for jitter_ms {self.jitter_ms:g}; "
                f"give it at least {least:.1f}"
            )
        return self

    @property
    def one_way(self) -> Path:
        """The same path as the emulator takes it: what each direction does to a packet."""
        return Path(
            delay_ms=self.rtt_ms / 2,
            jitter_ms=self.jitter_ms / JITTER_PER_HALF_WIDTH,
            loss=1 - (1 - self.loss) ** 0.5,
            down=self.down,
        )


class PathChange(Settings):
    """From `at_s` seconds after the start of the load on, a site's path is `path`; an outage is a
    path that is `down`."""

    at_s: float = Field(ge=0, le=86_400)
    site: Name
    path: PathPlan


class Network(Settings):
    """Paths by site at the start, and the changes after it. Sites that are not named have a path
    without delay."""

    note: str = ""
    paths: dict[Name, PathPlan] = Field(default_factory=dict)
    changes: tuple[PathChange, ...] = Field((), max_length=1000)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        times = [change.at_s for change in self.changes]
        if times != sorted(times):
            raise ValueError("changes: at_s must not go back from one entry to the next")
        return self

    def path(self, site: str, at_s: float) -> PathPlan:
        """A site's path `at_s` seconds after the start of the load."""
        current = self.paths.get(site, PathPlan())
        for change in self.changes:
            if change.at_s > at_s:
                break
            if change.site == site:
                current = change.path
        return current
