"""What the operators' pages show and what they may ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from headrace_controller.admin.access import Access
from headrace_controller.control.fleet_view import Views
from headrace_controller.control.gauges import CellGauges
from headrace_controller.control.intents.operators import Operators
from headrace_controller.control.intents.records import Actor
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.picking import PickerFeed
from headrace_shared.clock import Clock

ACTOR: Final = web.RequestKey("actor", Actor)
"""Who a request is of; set before its handler runs."""


@dataclass
class Surface:
    """The parts of a controller that operators see. `access` may be replaced while it runs.
    `recording` says in words what is recorded; `on_refused` hears why a request was not let in; `picking` is
    None without a picker."""

    clock: Clock
    loop: ControlLoop
    views: Views
    gauges: CellGauges
    operators: Operators
    access: Access
    baseline: str = ""
    recording: Callable[[], str] = lambda: "off"
    on_refused: Callable[[str], None] = lambda reason: None
    picking: PickerFeed | None = None
