"""Views to JSON: one serialiser a type, made once; the schema of the API comes of the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter

from headrace_controller.control.view import (
    AuditView,
    EventView,
    GatewayView,
    IntentView,
    PoolView,
)
from headrace_controller.projection.explain import CellExplanation

JSON = "application/json"
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong, and what to do."""

    error: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """Done at once. `kept`: it is on disk and outlives a restart of the controller."""

    subject: str
    accepted: bool
    kept: bool


@dataclass(frozen=True, slots=True)
class DrainAccepted:
    """The drain has begun, or is taken back; `state` is the cell's now."""

    cell: str
    accepted: bool
    kept: bool
    state: str


@dataclass(frozen=True, slots=True)
class Pools:
    """Every pool, by model."""

    pools: tuple[PoolView, ...]


@dataclass(frozen=True, slots=True)
class Gateways:
    """Every gateway of the settings."""

    gateways: tuple[GatewayView, ...]


@dataclass(frozen=True, slots=True)
class Events:
    """The newest entries, newest last; `last_id` is where to follow on from."""

    events: tuple[EventView, ...]
    last_id: int


@dataclass(frozen=True, slots=True)
class Intents:
    """What operators have asked for and not taken back."""

    intents: tuple[IntentView, ...]


@dataclass(frozen=True, slots=True)
class Acts:
    """What operators did, newest first; `next` is the `before` of the next page, null on the last."""

    acts: tuple[AuditView, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class Explanations:
    """Why a cell has the weights that it has, as seen from each gateway; none before the first tick
    that scored it."""

    explanations: tuple[CellExplanation, ...]


def adapter(kind: Any) -> TypeAdapter[Any]:
    """The serialiser of a type."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def dump(value: Any) -> bytes:
    """A view as JSON; NaN and infinity, which are no JSON, become null."""
    return adapter(type(value)).dump_json(value, by_alias=True)


def answer(value: Any, status: int = 200) -> web.Response:
    """A view as a response."""
    return web.Response(body=dump(value), content_type=JSON, status=status)


def fault(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """An error as a response."""
    return web.Response(body=dump(Fault(message)), content_type=JSON, status=status, headers=headers)
