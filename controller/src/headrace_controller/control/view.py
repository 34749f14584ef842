"""What the operator's side sees: plain frozen values. The API's documents and their schema are made
from these classes and from nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from headrace_controller.gateway.accounts import CellReport

EventKind = Literal["state", "alert", "self_preservation", "operator", "picker"]


def iso_time(wall: float) -> str:
    """Seconds since the Unix epoch as ISO 8601, UTC, with milliseconds."""
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")


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
    """One cell now. Ages in seconds; absent figures are null; weights 0 = not published.

    `error_rate` is the estimate over the last requests, by evidence; `requests` counts what the
    engine reported since this controller first heard of the cell, by kind. `fallback`: nvml stands in,
    partial (some of its nodes have no hardware figures) or dcgm_fallback (none has). `signals` are raw,
    in the catalogue's units; `contributions` are their parts of the pressure at the first gateway.
    `override` is the weight that an operator has set; `cordoned`: so is its site.
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
    pressures: Mapping[str, float]
    weights: Mapping[str, int]
    signals: Mapping[str, float | None]
    contributions: Mapping[str, float | None]
    fallback: str
    telemetry_lost: bool
    heartbeat_age_s: float | None
    in_flight: int | None
    error_rate: float | None
    requests: Mapping[str, int]
    members: tuple[MemberView, ...] = ()
    member_lost: bool = False
    override: int | None = None
    cordoned: bool = False
    warnings: tuple[str, ...] = ()
    """Early warnings that are on, by kind."""


@dataclass(frozen=True, slots=True)
class DrainView:
    """A drain under way or done; `remaining_s` to its deadline."""

    requested_by: str
    cause: str
    remaining_s: float
    finished: bool


@dataclass(frozen=True, slots=True)
class EventView:
    """Something that happened; `at` is wall-clock time, ISO 8601 UTC, and `id` rises.

    `kind` is state (a cell's life, with `from` and `to`), alert (an early warning), self_preservation,
    operator (what was asked, `by` whom), or picker (its guards let it name cells, or stand aside).
    """

    id: int
    at: str
    kind: EventKind
    cell: str
    from_state: Annotated[str, Field(serialization_alias="from")]
    to_state: Annotated[str, Field(serialization_alias="to")]
    event: str
    cause: str
    by: str


@dataclass(frozen=True, slots=True)
class TransitionView:
    """One entry of a cell's own history."""

    at: str
    from_state: Annotated[str, Field(serialization_alias="from")]
    to_state: Annotated[str, Field(serialization_alias="to")]
    event: str
    cause: str


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a cell serves; `max_model_len` in tokens, `base_model` where it is an adapter."""

    id: str
    max_model_len: int | None
    base_model: str


@dataclass(frozen=True, slots=True)
class CellDetail:
    """One cell and all that is known of it; `history` is oldest first and bounded. `reports` is what
    each gateway saw of it."""

    cell: CellView
    served: tuple[ServedModel, ...]
    gpus: tuple[str, ...]
    labels: Mapping[str, str]
    drain: DrainView | None
    history: tuple[TransitionView, ...]
    reports: Mapping[str, CellReport] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GatewayView:
    """One gateway: Envoys connected under its id, and how they took what they were sent. By type:
    `versions` published, `acked` last, and `in_force` = every connected Envoy has the newest. `unknown` are
    pools that an Envoy takes endpoints of and that no cell serves."""

    id: str
    connected: bool
    streams: int
    pushes: int
    nacks: int
    last_nack: str
    versions: Mapping[str, str]
    acked: Mapping[str, str] = field(default_factory=dict)
    in_force: bool = False
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetView:
    """A page of the region's cells, sorted by id; each cell is of the moment it was read. `total` counts
    all that match, `next` is the `after` of the next page, null on the last. `published` is false until
    the warm-start barrier has opened."""

    region: str
    baseline: str
    published: bool
    warm_start: str
    self_preservation: bool
    gateways: tuple[GatewayView, ...]
    cells: tuple[CellView, ...]
    total: int
    next: str | None


@dataclass(frozen=True, slots=True)
class SiteView:
    """One site: its cells by state."""

    site: str
    cells: int
    ready: int
    states: Mapping[str, int]
    cordoned: bool


@dataclass(frozen=True, slots=True)
class PoolView:
    """The cells that serve one model. `weights` are summed by gateway; `max_model_len` are the
    different lengths of its cells, tokens; `pinned_to`: the only sites that may serve it, null = any."""

    model: str
    cells: int
    ready: int
    states: Mapping[str, int]
    ready_by_site: Mapping[str, int]
    weights: Mapping[str, int]
    max_model_len: tuple[int, ...]
    pinned_to: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class IntentView:
    """Something that an operator has asked for and not taken back. `kind` is shadow, freeze, override,
    cordon or pin; `subject` the cell, site or model, "" for the region; `weight` and `sites` where it
    has them."""

    kind: str
    subject: str
    weight: int | None
    sites: tuple[str, ...]
    cause: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class StatusView:
    """The region at a glance. `intents_kept`: what operators ask for is on disk and outlives a
    restart. `tick_age_s` is how long ago the control loop last turned."""

    region: str
    version: str
    baseline: str
    published: bool
    warm_start: str
    ready: bool
    self_preservation: bool
    shadow: bool
    frozen: bool
    tick_age_s: float
    cells: int
    sites: tuple[SiteView, ...]
    gateways: tuple[GatewayView, ...]
    intents: tuple[IntentView, ...]
    intents_kept: bool
    recording: str


@dataclass(frozen=True, slots=True)
class AuditView:
    """One act of an operator. `source` is where it came from; `status` is the HTTP status it got."""

    id: int
    at: str
    who: str
    role: str
    source: str
    action: str
    subject: str
    detail: str
    status: int
