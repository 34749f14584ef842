"""What is recorded of a fleet, in words: made from the control loop's state, read back by a replay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace_controller.inventory import Fleet
from headrace_controller.inventory.facts import write_facts
from headrace_controller.inventory.nodes import NodeRecord
from headrace_controller.lifecycle import LoggedTransition
from headrace_controller.pressure import ErrorRecord, ScoreRecord, SpeedRecord
from headrace_controller.projection import Intents
from headrace_pb.v1 import telemetry_pb2 as pb


def life_of(fleet: Fleet, row: int) -> dict[str, Any]:
    """What weights depend on of a cell's life, and its row."""
    return {
        "cell": fleet.facts_of(row).cell_id,
        "row": row,
        "state": int(fleet.state[row]),
        "since": _plain(fleet.state_since[row]),
        "ready_since": _plain(fleet.ready_since[row]),
        "held": bool(fleet.held[row]),
        "telemetry_lost": bool(fleet.telemetry_lost[row]),
    }


def set_life(fleet: Fleet, told: Mapping[str, Any]) -> int | None:
    """Write a recorded life into the fleet; the cell's row there, None where the fleet has no such cell."""
    row = fleet.get(str(told["cell"]))
    if row is None:
        return None
    fleet.state[row] = told["state"]
    fleet.state_since[row] = _number(told["since"], -math.inf)
    fleet.ready_since[row] = _number(told["ready_since"], math.nan)
    fleet.held[row] = told["held"]
    fleet.telemetry_lost[row] = told["telemetry_lost"]
    return row


def change_of(entry: LoggedTransition) -> dict[str, str]:
    """Why a life changed, for people who read a recording."""
    change = entry.transition
    before = change.before.name if change.before else ""
    return {"from": before, "to": change.to.name, "event": change.event.value, "cause": change.cause}


def score_of(record: ScoreRecord) -> dict[str, Any]:
    """What a pressure depends on besides a cell's figures."""
    errors = record.errors
    return {
        "base": [_plain(value) for value in record.base],
        "errors": [errors.failed, errors.total, errors.seen, _plain(errors.plain), errors.counted],
        "unloaded_ttft_s": _plain(record.unloaded_ttft_s),
        "speed": list(record.speed),
        "reach": [_plain(value) for value in record.reach],
    }


def read_score(told: Mapping[str, Any]) -> ScoreRecord:
    """The inverse of `score_of`."""
    failed, total, seen, plain, counted = told["errors"]
    return ScoreRecord(
        tuple(_number(value, math.nan) for value in told["base"]),
        ErrorRecord(failed, total, seen, _number(plain, math.nan), counted),
        _number(told["unloaded_ttft_s"], math.nan),
        # Older recordings do not tell these.
        SpeedRecord(*told.get("speed", ())),
        tuple(_number(value, math.nan) for value in told.get("reach", ())),
    )


def hello_of(fleet: Fleet, record: NodeRecord) -> pb.Hello:
    """A Hello that says what is known of a node."""
    hello = pb.Hello(
        node=record.name, site=record.site, agent_version=record.agent_version, incarnation=record.incarnation
    )
    for cell_id in record.cells:
        hello.cells.append(write_facts(fleet.facts_of(fleet.row(cell_id))))
    for cell_id, gpus in record.members.items():
        hello.members.add(cell_id=cell_id, gpus=[pb.GpuFacts(uuid=gpu.uuid, name=gpu.name) for gpu in gpus])
    return hello


def intents_of(intents: Intents) -> dict[str, Any]:
    """Intents as plain data."""
    return {
        "shadow": intents.shadow,
        "frozen": intents.frozen,
        "overrides": dict(intents.overrides),
        "cordoned_sites": sorted(intents.cordoned_sites),
        "pins": {model: sorted(sites) for model, sites in intents.pins.items()},
    }


def read_intents(told: Mapping[str, Any]) -> Intents:
    """The inverse of `intents_of`."""
    return Intents(
        shadow=bool(told["shadow"]),
        frozen=bool(told["frozen"]),
        overrides={str(cell): int(weight) for cell, weight in told["overrides"].items()},
        cordoned_sites=frozenset(told["cordoned_sites"]),
        pins={str(model): frozenset(sites) for model, sites in told["pins"].items()},
    )


def _plain(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _number(value: float | None, absent: float) -> float:
    return absent if value is None else float(value)
