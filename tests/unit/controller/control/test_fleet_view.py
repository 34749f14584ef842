"""What operators see: the shape of the view, what is absent, and how old it may be."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from headrace_controller.control.fleet_view import MIN_AGE_S
from headrace_controller.control.view import CellView
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import NAMES
from tests.unit.controller.control.region import Region


@pytest.fixture
def region() -> Region:
    """Two cells; c1 is READY and measured, c2 has said Hello only."""
    made = Region()
    made.connect("c1", "c2")
    made.tick()
    made.beat(
        "c1",
        signals=pb.Signals(queue_depth=4, kv_fill=0.5, compute_active=0.25),
        in_flight=3,
        hardware_source=pb.HARDWARE_SOURCE_NVML,
    )
    made.tick()
    return made


def cell(region: Region, cell_id: str) -> CellView:
    (found,) = [each for each in region.views.fleet().cells if each.id == cell_id]
    return found


def test_a_measured_cell(region: Region) -> None:
    found = cell(region, "c1")
    assert (found.node, found.site, found.address) == ("n1", "berlin", "127.0.0.1:8000")
    assert (found.engine, found.models) == ("vllm 0.32.0", ("m",))
    assert (found.state, found.state_number, found.fallback, found.in_flight) == ("READY", 2, "nvml", 3)
    assert found.cause
    assert found.weights == {"gw-1": 100, "gw-2": 100}
    assert found.heartbeat_age_s == pytest.approx(0.2)
    assert found.pressures.keys() == {"gw-1", "gw-2"}
    assert found.pressure == max(found.pressures.values())
    assert 0 < found.pressure < 1


def test_signals_and_contributions_are_those_of_the_catalogue(region: Region) -> None:
    found = cell(region, "c1")
    assert tuple(found.signals) == tuple(found.contributions) == NAMES
    known = {name: value for name, value in found.signals.items() if value is not None}
    assert known == {
        "queue_depth": 4.0,
        "kv_fill": 0.5,
        "compute_active": 0.25,
        "rtt_ms": 5.0,
        "jitter_ms": 0.5,
    }
    assert sum(value or 0.0 for value in found.contributions.values()) == pytest.approx(
        found.pressures["gw-1"], abs=0.01
    )


def test_what_was_never_measured_is_none(region: Region) -> None:
    found = cell(region, "c2")
    assert (found.state, found.in_flight, found.error_rate) == ("LOADING", None, None)
    assert (found.weights, found.fallback) == ({"gw-1": 0, "gw-2": 0}, "")
    assert found.pressure == cell(region, "c1").pressure, "without figures of its own, that of its pool"
    assert {name for name, value in found.signals.items() if value is not None} <= {"rtt_ms", "jitter_ms"}


def test_a_cell_that_no_tick_has_scored_shows_its_raw_signals() -> None:
    region = Region()
    region.connect("c1")
    region.beat("c1", signals=pb.Signals(kv_fill=0.5))
    found = cell(region, "c1")
    assert {name: value for name, value in found.signals.items() if value is not None} == {
        "kv_fill": 0.5,
        "rtt_ms": 5.0,
        "jitter_ms": 0.5,
    }
    assert tuple(found.signals) == NAMES
    assert (found.pressure, found.contributions) == (None, {})


def test_no_hardware_figures_at_all_is_named() -> None:
    region = Region()
    region.connect("c1")
    region.beat("c1", hardware_source=pb.HARDWARE_SOURCE_NONE)
    assert cell(region, "c1").fallback == "dcgm_fallback"


def test_the_region_says_whether_weights_are_out() -> None:
    region = Region("baseline: lr\n")
    before = region.views.fleet()
    assert (before.published, before.region, before.baseline) == (False, "r", "lr")
    assert "waiting" in before.warm_start
    region.connect("c1")
    region.beat("c1")
    region.tick()
    after = region.views.fleet()
    assert (after.published, after.self_preservation) == (True, False)
    assert [(gateway.id, gateway.connected, gateway.nacks) for gateway in after.gateways] == [
        ("gw-1", False, 0),
        ("gw-2", False, 0),
    ]


def refuse(word: str) -> Any:
    raise AssertionError(f"{word} is no JSON")


def test_every_view_is_strict_json(region: Region) -> None:
    text = json.dumps(region.views.fleet().to_json(), allow_nan=False)
    assert json.loads(text, parse_constant=refuse)["cells"][0]["models"] == ["m"]
    assert json.dumps([event.to_json() for event in region.views.events(10)], allow_nan=False)


def test_a_view_is_reused_for_a_moment_and_no_longer(region: Region) -> None:
    """However many ask, the fleet is walked ten times a second at most."""
    first = region.views.fleet()
    region.clock.advance(MIN_AGE_S * 0.9)
    assert region.views.fleet() is first
    region.clock.advance(MIN_AGE_S * 0.2)
    assert region.views.fleet() is not first


def test_what_was_asked_is_seen_at_once(region: Region) -> None:
    region.views.fleet()
    region.loop.drain("c1", "repair", None)
    assert cell(region, "c1").state == "READY", "still the view from before"
    region.views.forget()
    assert (cell(region, "c1").state, cell(region, "c1").cause) == ("DRAINING", "repair")


def test_events_are_the_newest_with_their_time(region: Region) -> None:
    region.clock.advance(60)
    region.loop.drain("c1", "repair", None)
    first, last = region.views.events(2)
    assert (first.cell, last.cell) == ("c1", "c1")
    assert (last.from_state, last.to_state, last.event, last.cause) == (
        *("READY", "DRAINING"),
        *(last.event, "repair"),
    )
    took = datetime.fromisoformat(last.at) - datetime.fromisoformat(first.at)
    assert took.total_seconds() == pytest.approx(60.0)
    assert datetime.fromisoformat(last.at).timestamp() == pytest.approx(
        region.clock.wall_ns() / 1e9, abs=0.01
    )
    assert region.views.events(1) == (last,)
    begun = region.views.events(1000)[0]
    assert (begun.from_state, begun.to_state) == ("", "LOADING")


def test_a_forgotten_cell_is_in_no_view() -> None:
    region = Region("baseline: rr\n")
    region.connect("c1", "c2")
    region.connect("c1")
    region.tick(601)
    region.tick()
    assert "c2" not in [each.id for each in region.views.fleet().cells]
