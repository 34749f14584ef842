"""What a pool's cells together mean for gateways, besides their addresses."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_controller.capability import Guide, class_lengths
from headrace_controller.inventory.facts import CellFacts
from headrace_controller.projection.plan import PLAIN, ClassShape, PoolShape


def shape_of(model: str, cells: Sequence[CellFacts], guide: Guide) -> PoolShape:
    """The shape of the pool of `model` with these cells."""
    lengths = [cell.length_of(model) for cell in cells]
    return PoolShape(
        health_path=_health_path(cells),
        tls=any(cell.tls for cell in cells),
        max_model_len=max((length for length in lengths if length), default=None),
        classes=_classes(model, lengths, guide),
    )


def _health_path(cells: Sequence[CellFacts]) -> str:
    """The path that all cells which know theirs agree on; "" where they do not agree.

    A cell that is still loading may not know its kind, and makes no difference.
    """
    known = {cell.health_path for cell in cells if cell.health_path}
    if len(known) > 1:
        return ""
    return known.pop() if known else PLAIN.health_path


def _classes(model: str, lengths: Sequence[int | None], guide: Guide) -> tuple[ClassShape, ...]:
    settings = guide.settings
    found = class_lengths(lengths, settings.max_classes) if settings.classes else ()
    if not found:
        return ()
    small = (ClassShape(length, guide.bounds(model, length)) for length in found[:-1])
    return (*small, ClassShape(found[-1]))
