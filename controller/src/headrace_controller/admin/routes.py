"""The API as a table: each route's method, path, who may use it, what it takes and what it gives.

The server's routes and the OpenAPI document are both made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from headrace_controller.admin import bodies
from headrace_controller.admin.access import Role
from headrace_controller.admin.answers import (
    Accepted,
    Acts,
    DrainAccepted,
    Events,
    Explanations,
    Gateways,
    Intents,
    Pools,
)
from headrace_controller.control.picking import PickerStatus
from headrace_controller.control.view import CellDetail, FleetView, StatusView
from headrace_controller.picker.recent import PickView

MAX_PAGE: Final = 10_000
MAX_EVENTS: Final = 1000
MAX_ID: Final = 2**53 - 1
"""What JSON's readers take for a whole number."""
_STATES: Final = ["LOADING", "READY", "DRAINING", "FAILED", "TERMINATED"]


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter; `schema` is its JSON schema."""

    name: str
    said: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string", "maxLength": 1024})


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `handler` is a method of admin.handlers.Handlers; `path` is as OpenAPI writes it.
    `body` and `gives` are the types of what comes and goes, None = nothing and text. `statuses` are
    those of refusals, besides 401 and 403."""

    method: str
    path: str
    handler: str
    said: str
    role: Role = Role.VIEWER
    body: type[bodies.Body] | None = None
    gives: type[Any] | None = None
    status: int = 200
    content: str = "application/json"
    query: tuple[Query, ...] = ()
    statuses: tuple[int, ...] = ()
    action: str = ""
    """What the account of acts calls it; "" where nothing is done."""

    @property
    def body_required(self) -> bool:
        """Whether an empty body is refused."""
        return self.body is not None and any(each.is_required() for each in self.body.model_fields.values())


def _number(least: int, most: int, default: int | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    return schema if default is None else schema | {"default": default}


_PAGE: Final = (
    Query("limit", "How many at most.", _number(1, MAX_PAGE, 1000)),
    Query("after", "Only cells after this id: the `next` of the page before."),
    Query("site", "Only cells of this site."),
    Query("state", "Only cells in this state.", {"type": "string", "enum": _STATES}),
    Query("model", "Only cells that serve this model."),
    Query("node", "Only cells of this node."),
)
_CELL: Final = "/api/v1/cells/{cell}"

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/healthz", "healthz", "200 while the event loop turns.", Role.NOBODY, content="text/plain"),
    Route(
        "GET", "/readyz", "readyz", "200 while Envoys get weights from this controller; 503 and why else.",
        Role.NOBODY, content="text/plain", statuses=(503,),
    ),
    Route("GET", "/metrics", "metrics", "Prometheus text.", content="text/plain"),
    Route(
        "GET", "/openapi.json", "openapi", "This document.", Role.NOBODY, gives=dict[str, Any],
    ),
    Route("GET", "/api/v1/status", "status", "The region at a glance.", gives=StatusView),
    Route(
        "GET", "/api/v1/cells", "cells", "Cells, a page at a time, sorted by id.", gives=FleetView,
        query=_PAGE, statuses=(400,),
    ),
    Route(
        "GET", f"{_CELL}/explain", "explain", "Why the cell has the weights that it has.", gives=Explanations,
        query=(Query("gateway", "Only as seen from this gateway."),), statuses=(404,),
    ),
    Route(
        "POST", f"{_CELL}/drain", "drain", "Send the cell no new requests; those in flight finish.",
        Role.OPERATOR, bodies.DrainBody, DrainAccepted, 202, statuses=(400, 404, 409), action="drain",
    ),
    Route(
        "POST", f"{_CELL}/undrain", "undrain", "Take a drain back.", Role.OPERATOR, bodies.CauseBody,
        DrainAccepted, 202, statuses=(400, 404, 409), action="undrain",
    ),
    Route(
        "PUT", f"{_CELL}/override", "override", "Set the cell's weight.", Role.OPERATOR,
        bodies.OverrideBody, Accepted, statuses=(400, 404, 409), action="override",
    ),
    Route(
        "DELETE", f"{_CELL}/override", "clear_override", "Leave the weight to the pressures again.",
        Role.OPERATOR, None, Accepted, statuses=(404,), action="clear override",
    ),
    Route("GET", _CELL, "cell", "One cell, and all that is known of it.", gives=CellDetail, statuses=(404,)),
    Route(
        "PUT", "/api/v1/sites/{site}/cordon", "cordon",
        "Send the site no new requests where another can take them.", Role.OPERATOR, bodies.CauseBody,
        Accepted, statuses=(400, 404, 409), action="cordon",
    ),
    Route(
        "DELETE", "/api/v1/sites/{site}/cordon", "uncordon", "Lift a cordon.", Role.OPERATOR, None,
        Accepted, statuses=(404,), action="uncordon",
    ),
    Route("GET", "/api/v1/pools", "pools", "The cells of each model, counted.", gives=Pools),
    Route(
        "PUT", "/api/v1/pools/{model}/pin", "pin", "Let only these sites serve the model.", Role.OPERATOR,
        bodies.PinBody, Accepted, statuses=(400, 404, 409), action="pin",
    ),
    Route(
        "DELETE", "/api/v1/pools/{model}/pin", "unpin", "Let any site serve the model.", Role.OPERATOR,
        None, Accepted, statuses=(404,), action="unpin",
    ),
    Route("GET", "/api/v1/gateways", "gateways", "The gateways, and what their Envoys have.", gives=Gateways),
    Route(
        "GET", "/api/v1/events", "events", "The newest entries of the log.", gives=Events,
        query=(Query("limit", "How many at most.", _number(1, MAX_EVENTS, 100)),), statuses=(400,),
    ),
    Route(
        "GET", "/api/v1/events/stream", "stream",
        "Entries of the log as they come (server-sent events). `Last-Event-ID` or `after` says from where; "
        "without them it begins now. `event: gap` says that some are not kept any more.",
        content="text/event-stream",
        query=(Query("after", "Only entries above this id.", _number(0, MAX_ID)),), statuses=(400, 503),
    ),
    Route(
        "GET", "/api/v1/live", "live",
        "The region as it changes (server-sent events): `hello` names the columns, then once a second "
        "`cells` (all rows at first, then those that changed) and `region`, and `log` for each entry of the "
        "log; what has just happened is sent at once. `Last-Event-ID` or `after` says from which entry.",
        content="text/event-stream",
        query=(Query("after", "Only entries above this id.", _number(0, MAX_ID)),), statuses=(400, 503),
    ),
    Route(
        "GET", "/api/v1/intents", "intents", "What operators have asked for and not taken back.",
        gives=Intents,
    ),
    Route(
        "POST", "/api/v1/shadow", "shadow", "Compute weights and push none, or push again.", Role.OPERATOR,
        bodies.SwitchBody, Accepted, statuses=(400, 409), action="shadow",
    ),
    Route(
        "POST", "/api/v1/freeze", "freeze", "Hold the weights that are pushed, or let them go.",
        Role.OPERATOR, bodies.SwitchBody, Accepted, statuses=(400, 409), action="freeze",
    ),
    Route(
        "GET", "/api/v1/picker", "picker", "The picker: whether it names cells, and how well.",
        gives=PickerStatus,
    ),
    Route(
        "POST", "/api/v1/picker", "switch_picker",
        "Let the picker name cells, or leave all requests to the weights.", Role.OPERATOR,
        bodies.SwitchBody, Accepted, statuses=(400, 409), action="picker",
    ),
    Route(
        "GET", "/api/v1/requests/{request}/pick", "pick",
        "A recent pick: the candidates, their costs, and the choice.", gives=PickView, statuses=(404,),
    ),
    Route(
        "GET", "/api/v1/audit", "audit", "What operators did, newest first.", Role.OPERATOR, gives=Acts,
        query=(
            Query("limit", "How many at most.", _number(1, MAX_EVENTS, 100)),
            Query("before", "Only acts below this id: the `next` of the page before.", _number(1, MAX_ID)),
        ),
        statuses=(400, 503),
    ),
)  # fmt: skip
