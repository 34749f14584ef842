"""Cells over several nodes: the worst of all figures, and who counts for how long."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.inventory import MemberChange
from headrace_controller.inventory.members import GRACE_S, STALE_S
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import GPU_SIGNALS
from tests.unit.controller.inventory.builders import beat, hello, telemetry
from tests.unit.controller.inventory.split_cell import DCGM, NONE, NVML, TTL_S, Engine, reporting


@pytest.fixture
def engine() -> Engine:
    return reporting()


def test_each_signal_is_the_worst_of_all_nodes(engine: Engine) -> None:
    assert engine.signals == {
        "queue_depth": 4.0,
        "compute_active": 0.9,
        "vram_util": 0.8,
        "memory_bw_util": 0.3,
    }
    assert (engine.flag("member_lost"), engine.flag("hardware_partial")) == (False, False)


def test_the_heads_next_beat_does_not_wipe_the_members_figures(engine: Engine) -> None:
    engine.now += 0.5
    engine.head_beat(compute_active=0.2)
    assert engine.signals == {
        "queue_depth": 4.0,
        "compute_active": 0.9,
        "vram_util": 0.8,
        "memory_bw_util": 0.3,
    }
    engine.member_beat("w1", compute_active=0.3)
    assert engine.signals["compute_active"] == 0.3, "and a member's own next one does wipe its own"


def test_a_node_that_the_head_does_not_name_counts_nowhere(engine: Engine) -> None:
    """The fleet checks for itself, whatever ingest let through."""
    before = engine.signals
    engine.join("w9")
    assert engine.member_beat("w9", compute_active=1.0) == ["c1"]
    assert not engine.event("w9", pb.CELL_EVENT_KIND_GPU_LOST)
    assert engine.signals == before
    assert not engine.flag("gpu_lost")


def test_a_node_that_does_not_call_itself_a_member_counts_nowhere() -> None:
    engine = Engine("w1")
    engine.fleet.register("w1", "s", hello("c7"), engine.now)
    assert engine.member_beat("w1", compute_active=1.0) == ["c1"]
    assert "compute_active" not in engine.signals


def test_a_members_sign_of_life_is_not_the_heads(engine: Engine) -> None:
    """The silence of the head's agent must be seen, however lively its members are."""
    engine.now += 5.0
    engine.member_beat("w1", compute_active=0.9)
    engine.event("w2", pb.CELL_EVENT_KIND_XID, xid=31)
    engine.fleet.touch("w1", engine.now)
    assert engine.fleet.last_heard[engine.row] == 100.0
    assert engine.fleet.telemetry_at[engine.row] == 100.0


def test_a_silent_member_leaves_the_fold_and_marks_the_cell(engine: Engine) -> None:
    assert engine.judge(0.4) == ()
    engine.fleet.touch("w2", engine.now)
    engine.head_beat(compute_active=0.5, vram_util=0.5)
    assert engine.judge(0.2) == (MemberChange("c1", "w1", lost=True),)
    assert engine.signals["compute_active"] == 0.5
    assert engine.signals["vram_util"] == 0.8, "the other member still counts"
    assert engine.flag("member_lost")
    assert engine.judge() == (), "told once"


def test_a_member_that_is_back_clears_the_mark(engine: Engine) -> None:
    engine.judge(1.0)
    engine.member_beat("w1", compute_active=0.7)
    engine.member_beat("w2", compute_active=0.1)
    assert {(each.node, each.lost) for each in engine.judge()} == {("w1", False), ("w2", False)}
    assert not engine.flag("member_lost")
    assert engine.signals["compute_active"] == 0.7


def test_a_member_that_never_came_is_lost_after_a_grace() -> None:
    engine = Engine("w1")
    assert engine.judge(GRACE_S - 0.1) == ()
    assert engine.judge(0.2) == (MemberChange("c1", "w1", lost=True),)
    engine.join("w1")
    assert engine.judge() == (MemberChange("c1", "w1", lost=False),)


def test_a_member_that_takes_the_cell_out_of_its_config_is_lost(engine: Engine) -> None:
    engine.judge(0.1)
    engine.fleet.register("w1", "s", pb.Hello(incarnation=1), engine.now)
    for _ in range(12):
        engine.now += 0.1
        engine.fleet.touch("w1", engine.now)
        engine.fleet.touch("w2", engine.now)
        changes = engine.judge()
        if changes:
            break
    assert changes == (MemberChange("c1", "w1", lost=True),)


def test_the_loops_own_lateness_is_nobodys_silence(engine: Engine) -> None:
    engine.judge(0.1)
    assert engine.judge(3.0, lateness=2.9) == ()
    assert engine.judge(0.1) == (), "what was sent meanwhile is not read at once"
    assert len(engine.judge(0.4)) == 2, "and then silence is silence"


def test_a_beat_read_just_before_a_stall_has_the_stall_taken_off(engine: Engine) -> None:
    assert engine.judge(3.0, lateness=2.9) == ()
    assert len(engine.judge(0.5)) == 2


def test_the_heads_new_list_counts_at_once(engine: Engine) -> None:
    engine.head("w2", "w3")
    assert engine.signals["compute_active"] == 0.5
    assert engine.signals["vram_util"] == 0.8
    engine.head()
    assert engine.signals["vram_util"] == 0.5
    assert engine.fleet.crews.members(engine.row) == ()
    assert engine.judge(100.0) == ()


def test_a_planned_goodbye_holds_what_the_member_said(engine: Engine) -> None:
    engine.fleet.hold_members("w1", engine.now + 30.0)
    for _ in range(20):
        engine.now += 1.0
        engine.head_beat(compute_active=0.5)
        engine.fleet.touch("w2", engine.now)
        assert engine.judge() == ()
    assert engine.signals["compute_active"] == 0.9
    engine.now += 11.0
    engine.head_beat(compute_active=0.5)
    engine.fleet.touch("w2", engine.now)
    assert engine.judge() == (MemberChange("c1", "w1", lost=True),)
    assert engine.signals["compute_active"] == 0.5


def test_a_member_that_returns_within_the_grace_ends_the_hold(engine: Engine) -> None:
    engine.fleet.hold_members("w1", engine.now + 30.0)
    engine.now += 2.0
    engine.head_beat(compute_active=0.2)
    engine.join("w1")
    engine.member_beat("w1", compute_active=0.4)
    assert engine.signals["compute_active"] == 0.4
    assert MemberChange("c1", "w1", lost=True) in engine.judge(1.0)


def test_what_was_read_long_ago_is_left_out() -> None:
    engine = Engine("w1")
    engine.join("w1")
    engine.head_beat(compute_active=0.2)
    old = [pb.SourceBeat(name="dcgm", status=pb.SOURCE_STATUS_OK, age_ms=round(STALE_S * 1000) + 1)]
    engine.member_beat("w1", compute_active=0.9, sources=old)
    assert engine.signals["compute_active"] == 0.2
    still = [pb.SourceBeat(name="dcgm", status=pb.SOURCE_STATUS_STALE, age_ms=1)]
    engine.member_beat("w1", compute_active=0.9, sources=still)
    assert engine.signals["compute_active"] == 0.2
    assert engine.flag("hardware_partial")


def test_a_head_whose_exporter_stands_still_does_not_blind_its_members() -> None:
    engine = Engine("w1")
    engine.join("w1")
    stale = [pb.SourceBeat(name="dcgm", status=pb.SOURCE_STATUS_STALE, age_ms=9000)]
    said = beat("c1", signals={"compute_active": 0.9}, sources=stale)
    engine.fleet.apply("head", telemetry(said), engine.now)
    fresh = [pb.SourceBeat(name="dcgm", status=pb.SOURCE_STATUS_OK, age_ms=200)]
    engine.member_beat("w1", compute_active=0.3, sources=fresh)
    assert engine.signals["compute_active"] == 0.3
    assert engine.flag("hardware_read_at") == engine.now - 0.2
    assert not engine.flag("hardware_stale")


@pytest.mark.parametrize(
    ("head", "member", "source", "incomplete"),
    [
        ((DCGM, 0.1), (DCGM, 0.2), DCGM, False),
        ((DCGM, 0.1), (NVML, 0.2), NVML, False),
        ((NVML, 0.1), (DCGM, 0.2), NVML, False),
        ((NONE, None), (DCGM, 0.2), DCGM, True),
        ((DCGM, 0.1), (NONE, None), DCGM, True),
        ((NONE, None), (NONE, None), NONE, False),
    ],
)
def test_the_mark_is_that_of_the_weakest_source_in_use(
    head: tuple[int, float | None], member: tuple[int, float | None], source: int, incomplete: bool
) -> None:
    engine = Engine("w1")
    engine.join("w1")
    for tell, (kind, value) in ((engine.head_beat, head), (partial(engine.member_beat, "w1"), member)):
        if value is None:
            tell(kind)
        else:
            tell(kind, compute_active=value)
    assert (engine.flag("hardware_source"), engine.flag("hardware_partial")) == (source, incomplete)


def test_a_head_without_gpus_of_its_own_is_not_missing_any() -> None:
    engine = Engine("w1", gpus=0)
    engine.join("w1")
    engine.head_beat(NONE)
    engine.member_beat("w1", compute_active=0.2)
    assert (engine.flag("hardware_source"), engine.flag("hardware_partial")) == (DCGM, False)


FIGURE = st.none() | st.floats(0, 1)
STEP = st.tuples(
    st.sampled_from(["head", "w1", "w2", "stranger", "tick"]),
    st.dictionaries(st.sampled_from(GPU_SIGNALS), FIGURE),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=30), st.floats(0.05, 0.4))
def test_the_fold_is_the_worst_of_whoever_spoke_lately(steps: list[tuple[str, Any]], pause: float) -> None:
    """Against a model that keeps nothing but the last words and their times."""
    engine = Engine()
    engine.join("w1")
    engine.join("w2")
    engine.join("stranger")
    words: dict[str, tuple[float, dict[str, float]]] = {}
    for node, drawn in steps:
        engine.now += pause
        said = {name: value for name, value in drawn.items() if value is not None}
        if node == "head":
            engine.head_beat(**said)
        elif node != "tick":
            engine.member_beat(node, **said)
        if node not in ("stranger", "tick"):
            words[node] = engine.now, said
        engine.judge()
        expected: dict[str, float] = {}
        for speaker, (at, figures) in words.items():
            if speaker == "head" or engine.now - at <= TTL_S + 1e-9:
                for name, value in figures.items():
                    expected[name] = max(value, expected.get(name, value))
        if "head" in words and engine.now - words["head"][0] > STALE_S - 1e-9:
            return
        found = {name: value for name, value in engine.signals.items() if name in GPU_SIGNALS}
        assert found == expected
