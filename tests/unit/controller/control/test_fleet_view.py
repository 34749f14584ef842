"""What operators see: the shape of the view, what is absent, and how old it may be."""

from __future__ import annotations

import pytest

from headrace_controller.control.fleet_view import SLICE, STALLED_S, Filter
from headrace_controller.control.intents.records import Actor
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


def test_a_page_is_cut_from_the_sorted_ids_and_says_where_the_next_begins() -> None:
    region = Region()
    region.connect(*(f"c{number:03d}" for number in range(SLICE + 10)))
    ids = region.views.matching(Filter())
    assert list(ids) == sorted(ids)
    first, following = region.views.page(ids, "", SLICE)
    second, end = region.views.page(ids, following or "", SLICE)
    assert (*first, *second) == tuple(ids)
    assert end is None
    assert [len(part) for part in region.views.slices(ids)] == [SLICE, 10]


def test_a_page_goes_on_after_a_cell_that_is_gone() -> None:
    region = Region()
    region.connect("c1", "c3", "c5")
    assert region.views.page(region.views.matching(Filter()), "c2", 1) == (("c3",), "c3")


def test_cells_are_found_by_site_state_model_and_node() -> None:
    region = Region()
    region.connect("c1", "c2")
    region.connect("c3", node="n2", site="paris")
    region.tick()
    region.beat("c1")
    region.tick()
    find = region.views.matching
    assert list(find(Filter(state="READY"))) == ["c1"]
    assert list(find(Filter(state="LOADING", site="berlin"))) == ["c2"]
    assert list(find(Filter(site="paris"))) == list(find(Filter(node="n2"))) == ["c3"]
    assert list(find(Filter(model="m", node="n1"))) == ["c1", "c2"]
    for nothing in (Filter(site="rome"), Filter(state="x"), Filter(model="x"), Filter(node="x")):
        assert list(find(nothing)) == []


def test_a_fleet_of_nothing_has_no_pools_and_no_sites() -> None:
    views = Region().views
    assert (views.pools(), views.sites()) == ((), ())


def test_sites_and_pools_count_what_the_cells_say(region: Region) -> None:
    region.connect("c9", node="n2", site="paris")
    region.operators.cordon("paris", True, "", Actor("anna"))
    region.operators.pin("m", ["berlin"], "", Actor("anna"))
    region.tick()
    paris, berlin = sorted(region.views.sites(), key=lambda view: view.cordoned, reverse=True)
    assert (paris.site, paris.cells, paris.ready, paris.states) == ("paris", 1, 0, {"LOADING": 1})
    assert (berlin.site, berlin.cells, berlin.ready, berlin.cordoned) == ("berlin", 2, 1, False)
    (pool,) = region.views.pools()
    assert (pool.model, pool.cells, pool.ready, pool.ready_by_site) == ("m", 3, 1, {"berlin": 1})
    assert pool.states == {"LOADING": 2, "READY": 1}
    assert pool.weights == {"gw-1": 100, "gw-2": 100}
    assert (pool.max_model_len, pool.pinned_to) == ((4096,), ("berlin",))


def test_one_cell_has_its_history_and_its_drain(region: Region) -> None:
    region.operators.drain("c1", "repair", 60, Actor("anna"))
    region.clock.advance(10)
    found = region.views.cell("c1")
    assert found.cell == cell(region, "c1")
    assert found.drain is not None
    assert (found.drain.cause, found.drain.finished) == ("repair", False)
    assert found.drain.remaining_s == pytest.approx(50)
    assert [each.to_state for each in found.history] == ["LOADING", "READY", "DRAINING"]
    with pytest.raises(KeyError):
        region.views.cell("none")


def test_a_contribution_is_that_of_the_explanation(region: Region) -> None:
    """Columns and the explanation of one cell are two ways to the same numbers."""
    shares = region.loop.pressures.explain(0, region.loop.fleet.row("c1"))  # type: ignore[union-attr]
    assert cell(region, "c1").contributions == pytest.approx({s.name: s.contribution for s in shares})


def test_a_row_that_went_to_another_cell_shows_none_of_its_figures(region: Region) -> None:
    region.loop.fleet.remove("c1")
    del region.loop.book._lives["c1"]
    region.connect("c2", "new")
    assert region.loop.fleet.row("new") == 0
    assert cell(region, "new").pressures == {}


def test_readiness_is_lost_when_the_loop_stands_still(region: Region) -> None:
    assert region.views.not_ready() == ""
    region.clock.advance(STALLED_S + 1)
    assert "has not turned for 3.0 s" in region.views.not_ready()
    region.tick()
    assert region.views.not_ready() == ""


def test_a_forgotten_cell_is_in_no_view() -> None:
    region = Region("baseline: rr\n")
    region.connect("c1", "c2")
    region.connect("c1")
    region.tick(601)
    region.tick()
    assert "c2" not in [each.id for each in region.views.fleet().cells]
