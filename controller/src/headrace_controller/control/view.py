"""What the operator's side sees: plain frozen snapshots, made once a tick at most."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemberView:
    """Another node that a cell's engine runs on. `lost`: its agent does not report, or does not name
    the cell; `gpus` are UUIDs, `hardware_source` is dcgm, nvml, none or empty."""

    node: str
    lost: bool
    heard_age_s: float | None
    hardware_source: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CellView:
    """One cell now. Ages in seconds; absent figures are None; weights 0 = not published.

    `error_rate` is the estimate over the last requests, by evidence; `requests` counts what the
    engine reported since this controller first heard of the cell, by kind. `fallback`: nvml stands in,
    partial (some of its nodes have no hardware figures) or dcgm_fallback (none has).
    """

    id: str
    node: str
    site: str
    address: str
    engine: str
    models: tuple[str, ...]
    state: str
    state_number: int
    state_since_s: float
    cause: str
    pressure: float | None
    pressures: dict[str, float]
    weights: dict[str, int]
    signals: dict[str, float | None]
    contributions: dict[str, float | None]
    fallback: str
    telemetry_lost: bool
    heartbeat_age_s: float | None
    in_flight: int | None
    error_rate: float | None
    requests: dict[str, int]
    members: tuple[MemberView, ...] = ()
    member_lost: bool = False


@dataclass(frozen=True, slots=True)
class GatewayView:
    """One gateway: Envoys connected under its id, and how they took what they were sent."""

    id: str
    connected: bool
    streams: int
    pushes: int
    nacks: int
    last_nack: str
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class FleetView:
    """The whole region. `published` is False until the warm-start barrier has opened."""

    region: str
    baseline: str
    published: bool
    warm_start: str
    self_preservation: bool
    gateways: tuple[GatewayView, ...]
    cells: tuple[CellView, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for the API."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class EventView:
    """One change of a cell's state; `at` is wall-clock time, ISO 8601 UTC."""

    at: str
    cell: str
    from_state: str
    to_state: str
    event: str
    cause: str

    def to_json(self) -> dict[str, str]:
        """Plain data for the API."""
        return {
            "at": self.at,
            "cell": self.cell,
            "from": self.from_state,
            "to": self.to_state,
            "event": self.event,
            "cause": self.cause,
        }
