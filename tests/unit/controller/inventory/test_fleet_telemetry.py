"""What beats write: presence, ages, totals as evidence, hardware facts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.inventory import Fleet
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import INDEX
from tests.unit.controller.inventory.builders import DOWN, SERVING, beat, fleet_of, hello, telemetry


def send(fleet: Fleet, now: float, *beats: pb.CellBeat, node: str = "n-a") -> list[str]:
    return fleet.apply(node, telemetry(*beats), now)


def test_what_a_beat_does_not_say_becomes_absent_and_never_zero() -> None:
    fleet = fleet_of("a")
    send(fleet, 1.0, beat("a", signals={"queue_depth": 0.0, "kv_fill": 0.5}, in_flight=2))
    send(fleet, 1.5, beat("a", signals={"queue_depth": 0.0}))
    assert fleet.signals[0, INDEX["queue_depth"]] == 0.0
    assert math.isnan(fleet.signals[0, INDEX["kv_fill"]])
    assert math.isnan(fleet.in_flight[0])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_no_number_is_absent_and_touches_nothing_else(wrong: float) -> None:
    fleet = Fleet(["g"])
    fleet.register("n", "s", hello("a", "b"), 0.0)
    signals = {"queue_depth": wrong, "kv_fill": 0.5}
    fleet.apply("n", telemetry(beat("a", signals=signals), beat("b", signals={"queue_depth": 1.0})), 1.0)
    assert math.isnan(fleet.signals[0, 0])
    assert fleet.signals[0, INDEX["kv_fill"]] == 0.5
    assert fleet.signals[1, 0] == 1.0


def test_an_unknown_node_and_a_strangers_cell_write_nothing() -> None:
    fleet = fleet_of("a", "b")
    assert send(fleet, 1.0, beat("a"), node="who") == ["a"]
    assert send(fleet, 1.0, beat("b"), beat("zzz"), node="n-a") == ["b", "zzz"]
    assert np.isnan(fleet.signals[:2]).all()
    fleet.touch("who", 1.0)


def test_ages_become_times_of_reading() -> None:
    fleet = fleet_of("a")
    sources = [
        pb.SourceBeat(name="engine", status=pb.SOURCE_STATUS_OK, age_ms=400),
        pb.SourceBeat(name="dcgm", status=pb.SOURCE_STATUS_STALE, age_ms=9000),
        pb.SourceBeat(name="nvml", status=pb.SOURCE_STATUS_OK, age_ms=1),
    ]
    send(fleet, 10.0, beat("a", sources=sources))
    assert fleet.engine_read_at[0] == pytest.approx(9.6)
    assert fleet.hardware_read_at[0] == pytest.approx(1.0)
    assert fleet.hardware_stale[0]
    send(fleet, 11.0, beat("a"))
    assert math.isnan(fleet.engine_read_at[0])
    assert not fleet.hardware_stale[0]


def test_a_path_belongs_to_every_cell_of_its_node_and_to_its_gateway() -> None:
    fleet = Fleet(["g", "h"])
    fleet.register("n", "s", hello("a", "b"), 0.0)
    fleet.register("o", "s", hello("c"), 0.0)
    paths = [
        pb.PathBeat(gateway="h", rtt_ms=7.0, jitter_ms=1.0, age_ms=500),
        pb.PathBeat(gateway="elsewhere", rtt_ms=1.0),
    ]
    fleet.apply("n", telemetry(paths=paths), 2.0)
    assert fleet.rtt_ms[:3, 1].tolist()[:2] == [7.0, 7.0]
    assert math.isnan(fleet.rtt_ms[fleet.row("c"), 1])
    assert np.isnan(fleet.rtt_ms[:3, 0]).all()
    assert fleet.path_at[0, 1] == pytest.approx(1.5)
    assert fleet.jitter_ms[0, 1] == 1.0


def test_a_path_that_loses_everything_says_so_and_how_far_it_led_is_still_known() -> None:
    fleet = fleet_of("a")
    for path in (pb.PathBeat(gateway="g", rtt_ms=80.0, loss=0.0), pb.PathBeat(gateway="g", loss=1.0)):
        fleet.apply("n-a", telemetry(paths=[path]), 1.0)
    assert math.isnan(fleet.rtt_ms[0, 0])
    assert fleet.loss[0, 0] == 1.0
    assert fleet.last_rtt_ms[0, 0] == 80.0
    fleet.apply("n-a", telemetry(paths=[pb.PathBeat(gateway="g")]), 2.0)
    assert math.isnan(fleet.loss[0, 0])


@pytest.mark.parametrize("field", ["engine_state", "hardware_source"])
def test_a_number_that_this_build_does_not_know_says_nothing_and_spoils_nothing(field: str) -> None:
    """A later agent's new state must not tear a beat in two, nor end the stream."""
    fleet = fleet_of("a")
    send(fleet, 1.0, beat("a", signals={"queue_depth": 1.0}))
    odd = beat("a", signals={"queue_depth": 2.0}, in_flight=7)
    setattr(odd, field, 300)
    send(fleet, 1.5, odd)
    assert fleet.signals[0, INDEX["queue_depth"]] == 2.0
    assert fleet.in_flight[0] == 7
    assert fleet.engine_state[0] == SERVING
    assert fleet.engine_at[0] == (1.0 if field == "engine_state" else 1.5)
    assert fleet.hardware_source[0] == (pb.HARDWARE_SOURCE_DCGM if field == "engine_state" else 0)


def test_the_first_totals_are_the_base_and_later_ones_are_evidence() -> None:
    fleet = fleet_of("a")
    send(fleet, 1.0, beat("a", totals={"ok": 1000}))
    assert fleet.evidence[0].tolist() == [0, 0, 0, 0]
    send(fleet, 1.5, beat("a", totals={"ok": 1004, "client_errors": 3}))
    assert fleet.evidence[0].tolist() == [4, 3, 0, 0]


def test_a_new_incarnation_starts_from_a_new_base() -> None:
    fleet = fleet_of("a")
    send(fleet, 1.0, beat("a", totals={"ok": 10}))
    send(fleet, 1.5, beat("a", totals={"ok": 20}))
    fleet.register("n-a", "s", hello("a", incarnation=2), 2.0)
    send(fleet, 2.5, beat("a", totals={"ok": 500}))
    send(fleet, 3.0, beat("a", totals={"ok": 502}))
    assert fleet.evidence[0, 0] == 12


def test_totals_that_were_not_read_for_a_while_lose_nothing() -> None:
    fleet = fleet_of("a")
    for now, totals in ((1.0, {"ok": 10}), (2.0, None), (3.0, {}), (4.0, {"ok": 15})):
        send(fleet, now, beat("a", totals=totals))
    assert fleet.evidence[0, 0] == 5


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**63)), max_size=20))
def test_evidence_never_falls_whatever_an_agent_counts(counts: list[int | None]) -> None:
    fleet = fleet_of("a")
    last = 0.0
    for number, count in enumerate(counts):
        send(fleet, number + 1.0, beat("a", totals={} if count is None else {"server_errors": count}))
        assert fleet.evidence[0, 3] >= last
        last = fleet.evidence[0, 3]


def test_an_unsaid_engine_state_takes_nothing_back() -> None:
    fleet = fleet_of("a")
    send(fleet, 1.0, beat("a"))
    send(fleet, 1.5, beat("a", state=pb.ENGINE_STATE_UNSPECIFIED))
    assert fleet.engine_state[0] == SERVING
    assert fleet.engine_at[0] == 1.0


def test_only_a_change_of_xid_is_news() -> None:
    """Exporters keep the last XID for ever: one from last month must not fail a cell."""
    fleet = fleet_of("a")
    old = pb.HardwareHealth(last_xid=79)
    send(fleet, 1.0, beat("a", hardware=old))
    assert fleet.new_xid[0] == 0
    send(fleet, 1.5, beat("a", hardware=pb.HardwareHealth(last_xid=48)))
    assert fleet.new_xid[0] == 48
    assert fleet.xid_at[0] == 1.5
    fleet.new_xid[0] = 0
    send(fleet, 2.0, beat("a"))
    send(fleet, 2.5, beat("a", hardware=pb.HardwareHealth()))
    send(fleet, 3.0, beat("a", hardware=pb.HardwareHealth(last_xid=48)))
    assert fleet.new_xid[0] == 0


def test_an_event_writes_the_engines_state_and_its_xid_is_no_news_twice() -> None:
    fleet = fleet_of("a", "b")
    down = pb.CellEvent(cell_id="a", kind=pb.CELL_EVENT_KIND_ENGINE_DOWN)
    assert fleet.note_event("n-a", down, 1.0)
    assert fleet.engine_state[0] == DOWN
    assert not fleet.note_event("n-b", down, 1.0)
    send(fleet, 1.0, beat("a", hardware=pb.HardwareHealth()))
    assert fleet.note_event("n-a", pb.CellEvent(cell_id="a", kind=pb.CELL_EVENT_KIND_XID, xid=48), 1.1)
    send(fleet, 1.5, beat("a", hardware=pb.HardwareHealth(last_xid=48)))
    assert fleet.new_xid[0] == 0
    lost = pb.CellEvent(cell_id="a", kind=pb.CELL_EVENT_KIND_GPU_LOST, age_ms=60_000)
    assert fleet.note_event("n-a", lost, 2.0)
    assert not fleet.gpu_lost[0], "whether it is lost now is the next beat's to say"
    lost.age_ms = 0
    assert fleet.note_event("n-a", lost, 2.0)
    assert fleet.gpu_lost[0]


def test_an_xid_seen_after_an_outage_may_have_happened_at_any_time_in_it() -> None:
    fleet = fleet_of("a")
    send(fleet, 1.0, beat("a", hardware=pb.HardwareHealth()))
    send(fleet, 90.0, beat("a", hardware=pb.HardwareHealth(last_xid=79)))
    assert (fleet.new_xid[0], fleet.xid_at[0]) == (79, 1.0)
