"""Drains of two files in one: the wishes' store has the last word, the kept fleet knows the addresses."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_controller.control.intents.records import Kind, Wish
from headrace_controller.control.kept_fleet import KeptDrain, KeptFleet


def with_drains(kept: KeptFleet, wishes: Sequence[Wish] | None, wall: float) -> KeptFleet:
    """The kept fleet with the drains that stand in `wishes`, and no others; `wall` is now.

    Where the store holds nothing yet (None: it is new, or was lost) the fleet's own drains stand: they
    are of a version that kept them there alone, or the second copy of a store that was damaged.
    """
    if wishes is None:
        return kept
    drains = {wish.subject: _kept(wish, wall) for wish in wishes if wish.kind is Kind.DRAIN}
    cells = tuple(cell.model_copy(update={"drain": drains.get(cell.id)}) for cell in kept.cells)
    return kept.model_copy(update={"cells": cells})


def _kept(wish: Wish, wall: float) -> KeptDrain:
    return KeptDrain(
        requested_by=wish.requested_by,
        cause=wish.cause,
        target=wish.target,
        remaining_s=0.0 if wish.finished else max(0.0, wish.deadline_at - wall),
        finished=wish.finished,
    )
