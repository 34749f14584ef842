"""Hardware faults after which a cell's work cannot be trusted, as events tell of them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_controller.lifecycle.states import FATAL_XIDS
from headrace_pb.v1 import telemetry_pb2 as pb


@dataclass(frozen=True, slots=True)
class Fault:
    """A hardware fault that an event told of, and when it happened on the controller's clock."""

    cause: str
    at: float


def fatal_fault(event: pb.CellEvent, now: float) -> Fault | None:
    """The fatal hardware fault that an event tells of; None where it tells of none."""
    at = now - event.age_ms / 1000
    if event.kind == pb.CELL_EVENT_KIND_GPU_LOST:
        return Fault(event.cause or "GPU lost", at)
    if event.kind == pb.CELL_EVENT_KIND_XID and event.HasField("xid") and event.xid in FATAL_XIDS:
        named = f"XID {event.xid}"
        return Fault(event.cause if named in event.cause else f"{named} {event.cause}".rstrip(), at)
    return None
