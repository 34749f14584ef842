"""Small installations for the simulator's tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace_lab.load.arrivals import Arrival
from headrace_lab.scenarios import packaged
from headrace_lab.scenarios.fleets import FleetPlan
from headrace_lab.scenarios.networks import Network
from headrace_lab.sim.jobs import Job
from headrace_lab.sim.world import Setup, World

NO_PATH = Network()


def fleet(count: int = 3, **differences: dict[str, Any]) -> FleetPlan:
    """So many cells of one kind at one site; `differences` by cell id with _ for -."""
    return FleetPlan.model_validate(
        {
            "model": "70b-awq",
            "max_model_len": 32768,
            "sites": {"east": ["rtx-pro-6000"] * count},
            "cells": {name.replace("_", "-"): each for name, each in differences.items()},
        }
    )


def world(arm: str, plan: FleetPlan, seed: int = 1, network: Network = NO_PATH, **changes: Any) -> World:
    """An arm of the packaged scenario file over a fleet."""
    return World(Setup(fleet=plan, network=network, **changes), packaged().arm(arm), seed)


def every(gap_s: float, seconds: float, prompt: int = 512, output: int = 32) -> list[Arrival]:
    """Requests of one size at a constant rate."""
    return [
        Arrival(number, number * gap_s, "short", prompt, output) for number in range(round(seconds / gap_s))
    ]


def shares(jobs: Sequence[Job]) -> dict[str, float]:
    """Each cell's share of the requests."""
    found: dict[str, float] = {}
    for job in jobs:
        found[job.cell] = found.get(job.cell, 0.0) + 1 / len(jobs)
    return found
