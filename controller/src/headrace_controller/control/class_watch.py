"""Feeds what gateways saw of request sizes to the learner, and what it learned to the projection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from headrace_controller.capability import Boundary, BoundaryRecord, Guide, Learner, SizeCounts
from headrace_controller.control.metrics import Metrics
from headrace_controller.projection import Plan
from headrace_controller.settings import CapabilitySettings
from headrace_shared import log


def no_sizes() -> SizeCounts:
    """What gateways report where they report nothing: boundaries stay where they are."""
    return {}


class ClassWatch:
    """Holds the guide to classes. `sizes` gives the counts so far; set it to where reports come in."""

    def __init__(
        self,
        settings: CapabilitySettings,
        metrics: Metrics,
        kept: Iterable[BoundaryRecord] = (),
        sizes: Callable[[], SizeCounts] = no_sizes,
    ) -> None:
        self.sizes = sizes
        self._learner = Learner(settings, kept)
        self._metrics = metrics
        self._log = log.get("classes")
        for (model, length), boundary in self.guide.boundaries.items():
            self._show(model, length, boundary)

    @property
    def guide(self) -> Guide:
        """What the projection is to go by."""
        return self._learner.guide

    def records(self) -> tuple[BoundaryRecord, ...]:
        """What is to be kept over a restart."""
        return self._learner.records()

    def look(self, published: Plan | None, now: float, retention_s: float) -> bool:
        """Take in what is new; True when the guide is another one. Boundaries of classes that are gone
        for `retention_s` are forgotten, but not before it is known which there are."""
        if published is None:
            return False
        classes = _classes(published)
        forgotten = self._forget(classes, now, retention_s)
        before = self.guide
        if not classes or not self._learner.learn(self.sizes(), classes, now):
            return forgotten
        for (model, length), boundary in self.guide.boundaries.items():
            if boundary != before.boundaries.get((model, length)):
                self._show(model, length, boundary)
                self._log.info(
                    "class boundary",
                    model=model,
                    max_model_len=length,
                    bytes_per_token=round(boundary.bytes_per_token, 3),
                    reason=boundary.reason,
                )
        return True

    def _forget(self, classes: Mapping[str, Sequence[int]], now: float, retention_s: float) -> bool:
        gone = self._learner.prune(classes, now, retention_s)
        for model, length in gone:
            self._log.info("class boundary forgotten", model=model, max_model_len=length)
            # A start value, which is not shown, has nothing to be taken away.
            with suppress(KeyError):
                self._metrics.boundaries.remove(model, str(length))
        return bool(gone)

    def _show(self, model: str, length: int, boundary: Boundary) -> None:
        self._metrics.boundaries.labels(model, str(length)).set(boundary.bytes_per_token)


def _classes(plan: Plan) -> Mapping[str, Sequence[int]]:
    """The lengths of each pool's classes, of the pools that have any."""
    if not plan.classes:
        return {}
    return {
        model: [each.max_model_len for each in shape.classes]
        for model, shape in plan.shapes.items()
        if shape.classes
    }
