"""The gauges of the metrics page: one view, and what is absent in it stays absent."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headrace_controller.control.metrics import Metrics
from headrace_controller.control.view import FleetView, GatewayView, MemberView
from tests.support.views import cell_view

CELL = cell_view(
    'c"1\\\n',
    site="berlin",
    pressure=0.25,
    pressures={"gw-1": 0.25},
    weights={"gw-1": 70, "gw-2": 0},
    signals={"kv_fill": 0.5, "rtt_ms": None, "queue_depth": 0.0},
    fallback="dcgm_fallback",
)
NEVER_HEARD = replace(
    CELL,
    id="c2",
    pressures={},
    weights={},
    signals={},
    fallback="",
    heartbeat_age_s=None,
    members=(MemberView("host-2", False, 0.1, "dcgm", ("GPU-a",)), MemberView("host-3", True, None, "", ())),
    member_lost=True,
)
VIEW = FleetView(
    region="r",
    baseline="",
    published=True,
    warm_start="",
    self_preservation=True,
    gateways=(GatewayView("gw-1", True, 2, 7, 1, "no", {}), GatewayView("gw-2", False, 0, 0, 0, "", {})),
    cells=(CELL, NEVER_HEARD),
)


def page(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by metric and label values, label names in order."""
    text = generate_latest(metrics.registry).decode()
    return {
        family.name: {
            tuple(sample.labels[name] for name in sorted(sample.labels)): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


@pytest.fixture
def gauges() -> dict[str, dict[tuple[str, ...], float]]:
    metrics = Metrics()
    metrics.watch(lambda: VIEW)
    return page(metrics)


def test_gauges_are_those_of_the_view(gauges: dict[str, Any]) -> None:
    one, berlin = CELL.id, "berlin"
    assert gauges["headrace_cell_pressure"] == {(one, "gw-1", berlin): 0.25}
    assert gauges["headrace_cell_weight"] == {(one, "gw-1", berlin): 70, (one, "gw-2", berlin): 0}
    assert gauges["headrace_cell_state"] == {(one, berlin): 2, ("c2", berlin): 2}
    assert gauges["headrace_gateway_connected"] == {("gw-1",): 2, ("gw-2",): 0}
    assert gauges["headrace_self_preservation"] == {(): 1}


def test_a_figure_that_was_not_measured_has_no_sample(gauges: dict[str, Any]) -> None:
    """Zero would be a measurement."""
    assert gauges["headrace_cell_signal"] == {
        (CELL.id, "kv_fill", "berlin"): 0.5,
        (CELL.id, "queue_depth", "berlin"): 0,
    }
    assert gauges["headrace_heartbeat_age_seconds"] == {(CELL.id, "berlin"): 0.1}


def test_each_fallback_is_one_or_zero(gauges: dict[str, Any]) -> None:
    found = {key[:2]: value for key, value in gauges["headrace_cell_fallback"].items()}
    kinds = ("nvml", "partial", "dcgm_fallback", "member_lost")
    assert found.keys() == {(cell, kind) for cell in (CELL.id, "c2") for kind in kinds}
    assert {key for key, value in found.items() if value == 1} == {
        (CELL.id, "dcgm_fallback"),
        ("c2", "member_lost"),
    }
    assert set(found.values()) == {0, 1}


def test_each_member_is_up_or_not(gauges: dict[str, Any]) -> None:
    assert gauges["headrace_cell_member_up"] == {("c2", "host-2", "berlin"): 1, ("c2", "host-3", "berlin"): 0}


def test_each_scrape_reads_the_newest_view() -> None:
    views = [VIEW, replace(VIEW, cells=(), self_preservation=False)]
    metrics = Metrics()
    metrics.watch(lambda: views[0])
    assert page(metrics)["headrace_cell_state"]
    views.pop(0)
    assert page(metrics)["headrace_cell_state"] == {}, "a cell that is gone leaves no gauge behind"
    assert page(metrics)["headrace_self_preservation"] == {(): 0}


def test_two_controllers_in_one_process_do_not_share_counters() -> None:
    one, two = Metrics(), Metrics()
    one.errors.inc()
    assert one.registry.get_sample_value("headrace_tick_errors_total") == 1
    assert two.registry.get_sample_value("headrace_tick_errors_total") == 0


def test_the_view_is_plain_data_for_the_api() -> None:
    found = json.loads(json.dumps(VIEW.to_json(), allow_nan=False))
    assert found["cells"][0]["signals"] == {"kv_fill": 0.5, "rtt_ms": None, "queue_depth": 0.0}
    assert found["gateways"][0]["last_nack"] == "no"
    assert set(found) == {
        *("region", "baseline", "published", "warm_start", "self_preservation", "gateways", "cells")
    }
