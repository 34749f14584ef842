"""Runs for tests, made of records, faults and views of the controller."""

from __future__ import annotations

from typing import Any

from headrace_lab.demo.observe import CellView, Sample
from headrace_lab.live.seen import ArmRun, FaultSeen
from headrace_lab.load.records import Record
from tests.unit.lab.load.making import record


def at(due_s: float, ttft_ms: float = 100.0, **changes: Any) -> Record:
    """A good request due at `due_s`; with `first_ok=False` its first attempt failed."""
    return record(sent_s=due_s, ttft_ms=ttft_ms, e2e_ms=ttft_ms + 50.0, **changes)


def sample(at_s: float, **weights: int) -> Sample:
    """The controller's view at a moment: cells and their weights."""
    return Sample(
        at_s,
        {
            cell.replace("_", "-"): CellView("east", "vllm", "READY", "", 0.5, weight, 0.0, 0.0, {})
            for cell, weight in weights.items()
        },
    )


def run(arm: str = "weights", **changes: Any) -> ArmRun:
    """An arm's run that started at 0 on the clock."""
    fields: dict[str, Any] = {"arm": arm, "records": (), "start": 0.0}
    return ArmRun(**{**fields, **changes})


def fault(at_s: float, **changes: Any) -> FaultSeen:
    """A kill of east-1."""
    fields: dict[str, Any] = {"kind": "kill", "cells": ("east-1",), "at_s": at_s}
    return FaultSeen(**{**fields, **changes})
