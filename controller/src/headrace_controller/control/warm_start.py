"""From the fleet on disk to the young stages of a controller that has just started."""

from __future__ import annotations

import math

from headrace_controller.control.kept_fleet import KeptCell, KeptDrain, KeptFleet
from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import Book, Event, EventKind
from headrace_controller.pressure import ErrorRecord, PressureModel, ScoreRecord, SpeedRecord
from headrace_controller.projection import Projector
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb


def restore(
    kept: KeptFleet,
    settings: ControllerSettings,
    now: float,
    fleet: Fleet,
    book: Book,
    model: PressureModel,
    projector: Projector,
) -> None:
    """Take up the kept cells that were READY or drained.

    Until the barrier opens they count as on a planned leave: their agents need a while to come
    back, and only an engine that refuses is out meanwhile. What follows from it is not carried out:
    no agent is connected yet, and the first publication tells all.
    """
    by_node: dict[tuple[str, str], list[KeptCell]] = {}
    for cell in kept.cells:
        if cell.ready or cell.drain is not None:
            by_node.setdefault((cell.node, cell.site), []).append(cell)
    for (node, site), cells in by_node.items():
        hello = pb.Hello(node=node, site=site, cells=[_facts(cell) for cell in cells])
        book.registered(fleet.register(node, site, hello, now), now)
        for cell in cells:
            for event in _past(cell, settings.lifecycle.barrier_s):
                book.apply(cell.id, event, now)
            row = fleet.row(cell.id)
            fleet.last_rtt_ms[row] = [cell.rtt_ms.get(gateway, math.nan) for gateway in fleet.gateways]
            model.restore(fleet, row, _record(cell, fleet.gateways), now)
    weights = {cell.id: cell.weights for cell in kept.cells if cell.ready}
    projector.seed(fleet, weights, now, settings.lifecycle.barrier_s + settings.pressure.hold_s)
    for each in kept.classes:
        projector.seed_class(fleet, each.model, each.max_model_len, each.weights)


def _facts(cell: KeptCell) -> pb.CellFacts:
    facts = pb.CellFacts(
        cell_id=cell.id,
        address=pb.Address(host=cell.host, port=cell.port),
        engine_kind=cell.engine_kind,
        health_path=cell.health_path,
        tls=cell.tls,
    )
    for model in cell.models:
        entry = facts.models.add(id=model.id, base_model=model.base_model)
        if model.max_model_len is not None:
            entry.max_model_len = model.max_model_len
    return facts


def _past(cell: KeptCell, grace_s: float) -> tuple[Event, ...]:
    """What happened to a kept cell, told anew to a young life."""
    drain = cell.drain
    asked = () if drain is None else (_asked(drain),)
    if drain is not None and drain.finished:
        return asked
    return (
        Event(EventKind.ADOPTED, "kept from before the restart"),
        *asked,
        Event(EventKind.GOODBYE_PLANNED, "its agent has yet to find this controller", grace_s=grace_s),
        Event(EventKind.SILENCE_WITHHELD, "its agent has not been heard since the restart"),
    )


def _asked(drain: KeptDrain) -> Event:
    return Event(
        EventKind.DRAIN_ASKED,
        drain.cause,
        deadline_s=drain.remaining_s,
        requested_by=drain.requested_by,
        target=drain.target,
    )


def _record(cell: KeptCell, gateways: tuple[str, ...]) -> ScoreRecord:
    kept = cell.errors
    errors = ErrorRecord()
    if kept is not None:
        plain = math.nan if kept.plain is None else kept.plain
        errors = ErrorRecord(kept.failed, kept.total, kept.seen, plain, kept.counted)
    unloaded_s = math.nan if cell.unloaded_ttft_s is None else cell.unloaded_ttft_s
    scores = tuple(cell.scores.get(gateway, math.nan) for gateway in gateways)
    speed = SpeedRecord() if cell.speed is None else SpeedRecord(*cell.speed)
    reach = tuple(cell.reach.get(gateway, math.nan) for gateway in gateways)
    return ScoreRecord(scores, errors, unloaded_s, speed, reach)
