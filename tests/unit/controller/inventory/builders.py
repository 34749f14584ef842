"""Short ways to say what an agent says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headrace_controller.inventory import Fleet
from headrace_pb.v1 import telemetry_pb2 as pb

SERVING = pb.ENGINE_STATE_SERVING
LOADING = pb.ENGINE_STATE_LOADING
DOWN = pb.ENGINE_STATE_DOWN
HUNG = pb.ENGINE_STATE_HUNG
SLEEPING = pb.ENGINE_STATE_SLEEPING

ENOUGH = {"queue_depth": 4.0, "kv_fill": 0.25, "compute_active": 0.5, "memory_bw_util": 0.5}
"""Signals that make a quorum."""


def facts(cell_id: str, models: Iterable[str] = ("m",), port: int = 8000) -> pb.CellFacts:
    return pb.CellFacts(
        cell_id=cell_id,
        address=pb.Address(host="127.0.0.1", port=port),
        engine_kind="vllm",
        models=[pb.ModelFacts(id=model) for model in models],
    )


def hello(*cells: str | pb.CellFacts, incarnation: int = 1) -> pb.Hello:
    named = [facts(cell) if isinstance(cell, str) else cell for cell in cells]
    return pb.Hello(incarnation=incarnation, cells=named)


def beat(
    cell_id: str,
    state: Any = SERVING,
    serving_ms: int = 3_600_000,
    totals: dict[str, int] | None = None,
    signals: dict[str, float] | None = None,
    **fields: Any,
) -> pb.CellBeat:
    message = pb.CellBeat(
        cell_id=cell_id,
        engine_state=state,
        serving_ms=serving_ms if state == SERVING else 0,
        signals=pb.Signals(**(ENOUGH if signals is None else signals)),
        hardware_source=pb.HARDWARE_SOURCE_DCGM,
        **fields,
    )
    if totals is not None:
        message.requests.CopyFrom(pb.RequestTotals(**totals))
    return message


def telemetry(*beats: pb.CellBeat, paths: Sequence[pb.PathBeat] = ()) -> pb.Telemetry:
    return pb.Telemetry(seq=1, cells=beats, paths=paths)


def fleet_of(
    *cells: str, gateways: Sequence[str] = ("g",), now: float = 0.0, models: Iterable[str] = ("m",)
) -> Fleet:
    """A fleet with one node a cell, node `n-CELL`, at site s."""
    fleet = Fleet(gateways)
    for number, cell in enumerate(cells):
        fleet.register(f"n-{cell}", "s", hello(facts(cell, models, 8000 + number)), now)
    return fleet
