"""Faults that a cell plays on demand."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What can go wrong.

    HANG accepts connections and answers nothing, SLOW stretches every step, UNHEALTHY fails the
    health check and goes on serving, EXIT ends the process as a crash does, CLEAR ends the others.
    """

    HANG = "hang"
    SLOW = "slow"
    UNHEALTHY = "unhealthy"
    EXIT = "exit"
    CLEAR = "clear"


@dataclass(frozen=True, slots=True)
class Order:
    """A fault to play; `factor` is how much longer steps take under SLOW."""

    fault: Fault
    factor: float = 4.0


def read_order(raw: bytes) -> Order:
    """Read `{"fault": …, "factor": …}`. Raises ValueError that says what to write."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not valid JSON: {error}") from error
    names = [each.value for each in Fault]
    if not isinstance(body, dict) or body.get("fault") not in names:
        raise ValueError(f'write {{"fault": NAME}} with NAME one of {", ".join(names)}')
    if unknown := sorted(set(body) - {"fault", "factor"}):
        raise ValueError(f"unknown key {unknown[0]!r}; the keys are fault and factor")
    factor = body.get("factor", 4.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise ValueError(f"factor is {factor!r}; give a number above 0")
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"factor is {factor}; give a number above 0")
    return Order(Fault(body["fault"]), float(factor))


class FaultState:
    """The faults in force; HANG holds everyone at `pass_gate` until it is cleared."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.unhealthy = False
        self.slowdown = 1.0

    @property
    def hung(self) -> bool:
        return not self._open.is_set()

    async def pass_gate(self) -> None:
        """Return at once, or, while the cell hangs, when that ends."""
        await self._open.wait()

    def apply(self, order: Order) -> None:
        """Put a fault in force; EXIT is the caller's to carry out."""
        match order.fault:
            case Fault.HANG:
                self._open.clear()
            case Fault.SLOW:
                self.slowdown = order.factor
            case Fault.UNHEALTHY:
                self.unhealthy = True
            case Fault.CLEAR:
                self._open.set()
                self.unhealthy = False
                self.slowdown = 1.0
            case Fault.EXIT:
                pass

    def describe(self) -> dict[str, object]:
        """The faults in force, as JSON."""
        return {"hang": self.hung, "unhealthy": self.unhealthy, "slowdown": self.slowdown}
