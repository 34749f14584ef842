"""The gauges of the metrics page: what is absent stays absent, and no slice of it is long."""

from __future__ import annotations

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_controller import __version__
from headrace_controller.control import gauges as module
from headrace_controller.control.gauges import escape
from headrace_controller.control.metrics import IMPOSTURE, Metrics
from headrace_controller.lifecycle import Answer
from headrace_controller.xds.names import SHORT
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.control.region import Region

SW_THERMAL = 0x20

Page = dict[str, dict[tuple[str, ...], float]]


def page(region: Region) -> Page:
    """Values by metric and label values, label names in order."""
    text = "".join(region.desk.surface.gauges.slices())
    return {
        family.name: {
            tuple(sample.labels[name] for name in sorted(sample.labels)): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


@pytest.fixture
def region() -> Region:
    """c1 is READY and measured by NVML; c2 has said Hello only."""
    made = Region()
    made.connect("c1", "c2")
    made.tick()
    signals = pb.Signals(kv_fill=0.5, queue_depth=0)
    made.beat("c1", signals=signals, hardware_source=pb.HARDWARE_SOURCE_NVML)
    made.tick()
    return made


def test_gauges_are_those_of_the_view(region: Region) -> None:
    found, view = page(region), region.views.fleet()
    one = next(cell for cell in view.cells if cell.id == "c1")
    assert found["headrace_cell_weight"] == {
        ("c1", "gw-1", "berlin"): 100.0,
        ("c1", "gw-2", "berlin"): 100.0,
        ("c2", "gw-1", "berlin"): 0.0,
        ("c2", "gw-2", "berlin"): 0.0,
    }
    assert found["headrace_cell_pressure"]["c1", "gw-1", "berlin"] == one.pressures["gw-1"]
    assert found["headrace_cell_state"] == {("c1", "berlin"): 2, ("c2", "berlin"): 1}
    assert found["headrace_gateway_connected"] == {("gw-1",): 0, ("gw-2",): 0}
    assert found["headrace_gateway_refuses"]["gw-1", "EDS"] == 0
    assert found["headrace_self_preservation"] == {(): 0}


def test_a_figure_that_was_not_measured_has_no_sample(region: Region) -> None:
    """Zero would be a measurement."""
    by_name = {key[:2]: value for key, value in page(region)["headrace_cell_signal"].items()}
    assert by_name["c1", "kv_fill"] == 0.5
    assert by_name["c1", "queue_depth"] == 0.0
    assert ("c1", "ttft_p95_s") not in by_name
    assert not [key for key in by_name if key[0] == "c2" and key[1] not in ("rtt_ms", "jitter_ms")]


def test_each_fallback_is_one_or_zero(region: Region) -> None:
    found = {key[:2]: value for key, value in page(region)["headrace_cell_fallback"].items()}
    kinds = ("nvml", "partial", "dcgm_fallback", "member_lost", "telemetry_lost")
    assert found.keys() == {(cell, kind) for cell in ("c1", "c2") for kind in kinds}
    assert {key for key, value in found.items() if value == 1} == {("c1", "nvml")}


def test_a_cell_whose_agent_is_silent_and_whose_engine_serves_is_marked(region: Region) -> None:
    region.tick(1.0)
    region.loop.answered("c1", Answer.ALIVE, "200")
    assert region.loop.book.life("c1").telemetry_lost
    region.tick(0.05)
    found = page(region)["headrace_cell_fallback"]
    assert found["c1", "telemetry_lost", "berlin"] == 1
    assert found["c2", "telemetry_lost", "berlin"] == 0


def test_an_early_warning_has_a_series_while_it_is_on() -> None:
    region = Region()
    region.connect("c1", "c2")

    def look(reasons: int, seconds: int) -> dict[tuple[str, ...], float]:
        for _ in range(seconds):
            health = pb.HardwareHealth(clock_event_reasons=reasons)
            region.beat("c1", hardware_source=pb.HARDWARE_SOURCE_DCGM, hardware=health)
            region.tick(1.0)
        return page(region)["headrace_cell_early_warning"]

    assert look(0, 5) == {}
    assert look(SW_THERMAL, 5) == {("c1", "thermal_clocks", "berlin"): 1}
    assert look(0, 60) == {}


def test_before_the_first_tick_there_are_no_pressures_and_no_weights() -> None:
    region = Region()
    region.connect("c1")
    region.beat("c1", signals=pb.Signals(kv_fill=0.25))
    found = page(region)
    assert found["headrace_cell_pressure"] == {}
    assert set(found["headrace_cell_weight"].values()) == {0.0}
    assert 0.25 in found["headrace_cell_signal"].values()


def test_a_cell_that_is_gone_leaves_no_gauge_behind(region: Region) -> None:
    assert page(region)["headrace_cell_state"]
    for cell in ("c1", "c2"):
        region.loop.fleet.remove(cell)
    assert page(region)["headrace_cell_state"] == {}


def test_the_page_is_of_one_moment_however_long_it_takes(region: Region) -> None:
    slices = region.desk.surface.gauges.slices()
    first = next(slices)
    region.loop.fleet.remove("c1")
    region.loop.fleet.remove("c2")
    text = first + "".join(slices)
    assert 'headrace_cell_state{cell="c1",site="berlin"} 2.0' in text
    assert 'headrace_cell_state{cell="c2",site="berlin"} 1.0' in text


def test_no_slice_is_longer_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE", 7)
    region = Region()
    region.connect(*(f"c{number}" for number in range(50)))
    region.tick()
    slices = list(region.desk.surface.gauges.slices())
    assert max(text.count("\n") for text in slices[1:]) <= 7
    lines = "".join(slices).splitlines()
    assert len([line for line in lines if line.startswith("headrace_cell_state{")]) == 50


def test_labels_are_escaped() -> None:
    assert escape('c"1\\\n') == 'c\\"1\\\\\\n'
    (family,) = text_string_to_metric_families(
        f'# TYPE a gauge\na{{b="{escape(chr(34) + chr(92) + chr(10))}"}} 1\n'
    )
    assert family.samples[0].labels["b"] == '"\\\n'


def test_a_member_is_up_or_not() -> None:
    region = Region()
    cell = pb.CellFacts(cell_id="c1", address=pb.Address(host="127.0.0.1", port=1), member_nodes=["n2"])
    region.loop.hello(pb.Hello(node="n1", site="berlin", incarnation=1, cells=[cell]), region.clock.now())
    assert page(region)["headrace_cell_member_up"] == {("c1", "n2", "berlin"): 1.0}
    region.tick(10)
    assert page(region)["headrace_cell_member_up"] == {("c1", "n2", "berlin"): 0.0}


def test_two_controllers_in_one_process_do_not_share_counters() -> None:
    one, two = Metrics(), Metrics()
    one.errors.inc()
    assert one.registry.get_sample_value("headrace_tick_errors_total") == 1
    assert two.registry.get_sample_value("headrace_tick_errors_total") == 0


def test_what_alerts_watch_is_counted_from_zero() -> None:
    """A counter that begins to exist with its first event hides it from increase()."""
    metrics = Metrics()
    metrics.expect(["gw-1", "gw-2"])
    value = metrics.registry.get_sample_value
    for gateway in ("gw-1", "gw-2"):
        for kind in SHORT.values():
            assert value("headrace_xds_nacks_total", {"gateway": gateway, "type": kind}) == 0
    for reason in IMPOSTURE:
        assert value("headrace_rejections_total", {"reason": reason}) == 0


def test_the_process_tells_its_version_and_its_memory() -> None:
    value = Metrics().registry.get_sample_value
    assert value("headrace_controller_info", {"version": __version__}) == 1
    assert (value("process_resident_memory_bytes") or 0) > 1e6


def test_values_are_written_so_that_they_read_back_the_same(region: Region) -> None:
    assert region.loop.pressures is not None
    value = region.loop.pressures.pressure[0, region.loop.fleet.row("c1")]
    assert np.float64(page(region)["headrace_cell_pressure"]["c1", "gw-1", "berlin"]) == value
