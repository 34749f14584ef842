"""What a pool's cells together mean for gateways, besides their addresses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from headrace_controller.capability import Guide, class_lengths
from headrace_controller.inventory.facts import CellFacts
from headrace_controller.projection.plan import PLAIN, ClassShape, PoolShape


def shape_of(model: str, cells: Sequence[CellFacts], guide: Guide) -> PoolShape:
    """The shape of the pool of `model` with these cells."""
    # Thousands of cells differ in a few ways only.
    kinds = {(cell.length_of(model), cell.health_path, cell.tls) for cell in cells}
    lengths = {length for length, _, _ in kinds}
    return PoolShape(
        health_path=_health_path({path for _, path, _ in kinds if path}),
        tls=any(tls for *_, tls in kinds),
        max_model_len=max((length for length in lengths if length), default=None),
        classes=_classes(model, lengths, guide),
    )


def _health_path(known: Set[str]) -> str:
    """The path that all cells which know theirs agree on; "" where they do not agree.

    A cell that is still loading may not know its kind, and makes no difference.
    """
    if len(known) > 1:
        return ""
    return next(iter(known), PLAIN.health_path)


def _classes(model: str, lengths: Iterable[int | None], guide: Guide) -> tuple[ClassShape, ...]:
    settings = guide.settings
    found = class_lengths(lengths, settings.max_classes) if settings.classes else ()
    if not found:
        return ()
    small = (ClassShape(length, guide.bounds(model, length)) for length in found[:-1])
    return (*small, ClassShape(found[-1]))
