"""Answers of a controller's API, made of the same classes as the real ones."""

from __future__ import annotations

import json
from typing import Any

from headrace_controller.admin.answers import dump
from headrace_controller.control.view import (
    CellDetail,
    CellView,
    FleetView,
    GatewayView,
    ServedModel,
    SiteView,
    StatusView,
    TransitionView,
)
from headrace_shared.signals import NAMES
from tests.support.views import cell_view

GATEWAYS = ("gw-1", "gw-2")


def cell(name: str, site: str = "berlin", **change: Any) -> CellView:
    """A cell that serves; `change` replaces what it has."""
    given: dict[str, Any] = {
        "node": f"{site}-node",
        "site": site,
        "models": ("llama",),
        "state_since_s": 61.2,
        "cause": "engine serves",
        "pressure": 0.25,
        "weights": dict.fromkeys(GATEWAYS, 70),
        "signals": dict.fromkeys(NAMES, 0.2) | {"queue_depth": 3.0, "ttft_p95_s": 0.42, "rtt_ms": 12.5},
        "contributions": dict.fromkeys(NAMES, 0.02),
        "heartbeat_age_s": 0.31,
        "in_flight": 4,
    }
    return cell_view(name, **given | change)


def failed(name: str, site: str = "berlin") -> CellView:
    """A cell whose engine died."""
    return cell(
        name,
        site,
        state="FAILED",
        cause="engine down: refused",
        pressure=None,
        weights={},
        signals=dict.fromkeys(NAMES),
        heartbeat_age_s=None,
        in_flight=None,
    )


def plain(view: Any) -> Any:
    """A view as the API's clients get it."""
    return json.loads(dump(view))


def page(*cells: CellView, following: str | None = None) -> Any:
    """An answer of /api/v1/cells."""
    return plain(
        FleetView(
            "eu-1", "", True, "weights are published", False, (gateway(),), cells, len(cells), following
        )
    )


def gateway(**change: Any) -> GatewayView:
    """A gateway that is connected and has the newest."""
    given: dict[str, Any] = {"id": "gw-1", "connected": True, "streams": 1, "pushes": 5, "nacks": 0}
    return GatewayView(**given | {"last_nack": "", "versions": {}, "in_force": True} | change)


def status(*cells: CellView, **change: Any) -> Any:
    """An answer of /api/v1/status of a region of these cells."""
    sites = []
    for site in sorted({each.site for each in cells}):
        states = [each.state for each in cells if each.site == site]
        counted = {state: states.count(state) for state in states}
        sites.append(SiteView(site, len(states), counted.get("READY", 0), counted, False))
    given: dict[str, Any] = {
        "region": "eu-1",
        "version": "0.1.0",
        "baseline": "",
        "published": True,
        "warm_start": "weights are published",
        "ready": True,
        "self_preservation": False,
        "shadow": False,
        "frozen": False,
        "tick_age_s": 0.01,
        "cells": len(cells),
        "sites": tuple(sites),
        "gateways": (gateway(),),
        "intents": (),
        "intents_kept": True,
        "recording": "off",
    }
    return plain(StatusView(**given | change))


def detail(view: CellView) -> Any:
    """An answer of /api/v1/cells/CELL."""
    history = (
        TransitionView("2026-11-30T09:00:00.000+00:00", "", "LOADING", "registered", "named by its node"),
        TransitionView("2026-11-30T09:00:09.000+00:00", "LOADING", "READY", "engine up", "engine serves"),
    )
    served = tuple(ServedModel(model, 8192, "") for model in view.models)
    return plain(CellDetail(view, served, ("GPU-1",), {"rack": "7"}, None, history))


def many(count: int, sites: int = 8) -> list[CellView]:
    """So many cells, some under pressure, one failed at each site."""
    made = []
    for at in range(count):
        site = f"site-{at % sites}"
        name = f"{site}-cell-{at:04}"
        if at < sites:
            made.append(failed(name, site))
        else:
            made.append(cell(name, site, pressure=(at % 100) / 100))
    return made
