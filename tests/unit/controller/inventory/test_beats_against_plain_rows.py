"""What any sequence of beats leaves in the arrays is what a plain, slow reader would have left there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.inventory import Fleet
from headrace_controller.inventory.columns import HEALTH_KINDS, NEVER, TOTAL_KINDS
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS
from tests.unit.controller.ingest.any_beats import NAMES, any_beats
from tests.unit.controller.ingest.test_reading import age_of, plain
from tests.unit.controller.inventory.builders import hello

WANTED = {pb.HARDWARE_SOURCE_DCGM: "dcgm", pb.HARDWARE_SOURCE_NVML: "nvml"}


class PlainRow:
    """One cell, field by field."""

    def __init__(self) -> None:
        nothing = [math.nan] * 4
        self.columns: dict[str, Any] = {
            "telemetry_at": NEVER, "signals": [math.nan] * 8, "health": [math.nan] * 6,
            "in_flight": math.nan, "hardware_source": 0, "hardware_read_at": math.nan,
            "hardware_stale": False, "engine_read_at": math.nan, "engine_stale": False,
            "engine_state": 0, "engine_at": NEVER, "serving_ms": 0.0, "totals": nothing,
            "evidence": [0.0] * 4, "gpu_lost": False, "last_xid": -1, "new_xid": 0, "xid_at": NEVER,
        }  # fmt: skip

    def write(self, beat: pb.CellBeat, now: float) -> None:
        row = self.columns
        source = beat.hardware_source if 0 <= beat.hardware_source <= 3 else 0
        wanted = WANTED.get(source)
        hardware_ms, hardware_stale = age_of(beat, wanted) if wanted else (math.nan, False)
        engine_ms, engine_stale = age_of(beat, "engine")
        since = now if now - row["telemetry_at"] <= 2.0 else row["telemetry_at"]
        row |= {
            "telemetry_at": now, "signals": plain(beat.signals, CELL_SIGNALS),
            "health": plain(beat.hardware, HEALTH_KINDS), "in_flight": plain(beat, ("in_flight",))[0],
            "hardware_source": source, "hardware_read_at": now - hardware_ms / 1000,
            "hardware_stale": hardware_stale, "engine_read_at": now - engine_ms / 1000,
            "engine_stale": engine_stale,
        }  # fmt: skip
        if 1 <= beat.engine_state <= 5:
            row |= {"engine_state": beat.engine_state, "engine_at": now, "serving_ms": float(beat.serving_ms)}
        self._count(beat.requests)
        if beat.HasField("hardware"):
            self._fail(beat.hardware, since)

    def _count(self, requests: pb.RequestTotals) -> None:
        totals, evidence = list(self.columns["totals"]), list(self.columns["evidence"])
        first = all(math.isnan(total) for total in totals)
        for kind, name in enumerate(TOTAL_KINDS):
            if requests.HasField(name):
                value = float(getattr(requests, name))
                base = 0.0 if math.isnan(totals[kind]) else totals[kind]
                evidence[kind] += 0.0 if first else max(0.0, value - base)
                totals[kind] = value
        self.columns |= {"totals": totals, "evidence": evidence}

    def _fail(self, health: pb.HardwareHealth, since: float) -> None:
        row, xid = self.columns, min(health.last_xid, 1_000_000)
        row["gpu_lost"] = health.gpu_lost
        if xid and row["last_xid"] not in (-1, xid):
            if row["new_xid"]:
                return
            row |= {"new_xid": xid, "xid_at": since}
        if xid or row["last_xid"] == -1:
            row["last_xid"] = xid


def plain_paths(paths: dict[str, Any], told: pb.Telemetry, now: float) -> None:
    """The paths of a node, (figures of gateway g, of gateway h)."""
    for path in told.paths:
        if path.gateway in ("g", "h"):
            at = ("g", "h").index(path.gateway)
            rtt, jitter, loss = plain(path, ("rtt_ms", "jitter_ms", "loss"))
            paths["rtt_ms"][at], paths["jitter_ms"][at], paths["loss"][at] = rtt, jitter, loss
            paths["path_at"][at] = now - path.age_ms / 1000
            if not math.isnan(rtt):
                paths["last_rtt_ms"][at] = rtt


@given(st.lists(st.tuples(any_beats, st.sampled_from((0.1, 0.5, 2.5))), max_size=8), st.permutations("abc"))
def test_a_fleet_holds_what_a_plain_reader_would_hold(
    told: list[tuple[pb.Telemetry, float]], order: list[str]
) -> None:
    """Also where the node's rows do not follow on each other, and where strangers are named."""
    fleet = Fleet(["g", "h"])
    for name in "abc":
        fleet.register(f"before-{name}", "s", hello(name), 0.0)
    fleet.register("n", "s", hello(*order), 0.0)
    rows = {name: PlainRow() for name in "abc"}
    paths = {name: [math.nan] * 2 for name in ("rtt_ms", "jitter_ms", "loss", "path_at", "last_rtt_ms")}
    now = 10.0
    for message, seconds in told:
        now += seconds
        strangers = fleet.apply("n", message, now)
        assert strangers == [beat.cell_id for beat in message.cells if beat.cell_id == NAMES[-1]]
        for beat in message.cells:
            if beat.cell_id in rows:
                rows[beat.cell_id].write(beat, now)
        plain_paths(paths, message, now)
        for name, row in rows.items():
            at = fleet.row(name)
            for column, expected in (row.columns | paths).items():
                held = np.asarray(getattr(fleet, column)[at], dtype=np.float64)
                wanted = np.asarray(expected, dtype=np.float64)
                assert held == pytest.approx(wanted, nan_ok=True, rel=1e-12), (name, column)
