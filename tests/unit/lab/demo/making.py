"""Samples of the controller's API for tests."""

from __future__ import annotations

from typing import Any

from headrace_lab.demo.observe import History, Sample, read_sample


def cell_json(cell_id: str, weight: int | None = 100, **changes: Any) -> dict[str, Any]:
    """One cell as the API gives it; `weight` None = no weight at the gateway."""
    return {
        "id": cell_id,
        "node": "n",
        "site": "s",
        "address": "127.0.0.1:8001",
        "engine": "vllm 0.32.0",
        "models": ["m"],
        "state": "READY",
        "state_since_s": 1.0,
        "cause": "warm",
        "pressure": 0.25,
        "weights": {} if weight is None else {"gw-1": weight},
        "signals": {"kv_fill": 0.1, "queue_depth": 0.0, "error_rate": None},
        "fallback": "",
        "telemetry_lost": False,
        "heartbeat_age_s": 0.05,
        "in_flight": 3,
        "error_rate": 0.0,
        **changes,
    }


def fleet_json(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The answer of GET /api/v1/cells."""
    gateways = [{"id": "gw-1", "connected": True, "nacks": 0}]
    return {"region": "lab", "published": True, "gateways": gateways, "cells": list(cells), **changes}


def sample(at: float, **weights: int) -> Sample:
    """A sample whose cells are all READY with the given weights."""
    return read_sample(fleet_json(*(cell_json(cell, weight) for cell, weight in weights.items())), at)


def history(*samples: Sample) -> History:
    """A history of the samples."""
    made = History()
    for each in samples:
        made.add(each)
    return made
