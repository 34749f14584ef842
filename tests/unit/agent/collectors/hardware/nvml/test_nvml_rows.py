"""Rows from another process are checked, and a GPU keeps its name and index whatever happens."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.hardware.nvml.rows import Rows


def row(index: int, uuid: str, **more: Any) -> dict[str, Any]:
    return {"index": index, "uuid": uuid, "name": "Test", "gpu": 10 * index} | more


def lost(gpus: Any) -> list[tuple[str, int | None]]:
    return [(gpu.uuid, gpu.index) for gpu in gpus if gpu.health.gpu_lost]


def test_a_gpu_that_calls_itself_lost_keeps_its_name() -> None:
    rows = Rows()
    rows.take([row(0, "GPU-a"), row(1, "GPU-b")], 2)
    assert lost(rows.take([row(0, "GPU-a"), {"index": 1, "lost": True}], 2)) == [("GPU-b", 1)]


def test_a_gpu_missing_after_a_restart_is_lost_and_those_behind_keep_their_index() -> None:
    rows = Rows()
    rows.take([row(0, "GPU-a"), row(1, "GPU-b"), row(2, "GPU-c")], 3)
    gpus = rows.take([row(0, "GPU-a"), row(1, "GPU-c")], 2)
    assert lost(gpus) == [("GPU-b", 1)]
    assert [(gpu.uuid, gpu.index) for gpu in gpus if gpu.signals] == [("GPU-a", 0), ("GPU-c", 2)]
    assert lost(rows.take([row(0, "GPU-a"), row(1, "GPU-b"), row(2, "GPU-c")], 3)) == []


def test_a_gpu_lost_after_others_moved_up_is_the_one_that_has_the_index_now() -> None:
    rows = Rows()
    rows.take([row(0, "GPU-a"), row(1, "GPU-b"), row(2, "GPU-c")], 3)
    rows.take([row(0, "GPU-a"), row(1, "GPU-c")], 2)
    gpus = rows.take([row(0, "GPU-a"), {"index": 1, "lost": True}], 2)
    assert sorted(lost(gpus)) == [("GPU-b", 1), ("GPU-c", 2)]


def test_the_instances_of_a_lost_gpu_are_lost_with_it_and_keep_their_names() -> None:
    rows = Rows()
    rows.take([row(0, "GPU-a"), row(0, "GPU-a", instance="3", aliases=["MIG-x"])], 1)
    gpus = rows.take([{"index": 0, "lost": True}], 1)
    assert [(gpu.key, gpu.health.gpu_lost, gpu.signals) for gpu in gpus] == [
        ("GPU-a", True, {}),
        ("GPU-a:3", True, {}),
    ]
    assert gpus[1].aliases == ("MIG-x",)
    assert [gpu.key for gpu in rows.take([], 0) if gpu.health.gpu_lost] == ["GPU-a", "GPU-a:3"]


def test_a_gpu_that_was_only_left_out_is_not_lost() -> None:
    rows = Rows()
    rows.take([row(0, "GPU-a"), row(1, "GPU-b")], 2)
    assert lost(rows.take([row(0, "GPU-a")], 2)) == []


def test_a_lost_gpu_that_was_never_seen_has_an_index_only() -> None:
    assert lost(Rows().take([{"index": 3, "lost": True}], 4)) == [("", 3)]


def test_an_instance_that_is_taken_away_is_no_lost_gpu() -> None:
    rows = Rows()
    rows.take([row(0, "GPU-a"), row(0, "GPU-a", instance="3")], 1)
    assert lost(rows.take([row(0, "GPU-a")], 1)) == []


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers())
)
FIELDS = st.sampled_from(
    [
        "index",
        "uuid",
        "name",
        "instance",
        "aliases",
        "gpu",
        "accessed",
        "sm",
        "tensor",
        "dram",
        "total",
        "reserved",
        "used",
        "temperature",
        "margin",
        "power",
        "power_limit",
        "remapped_rows",
        "lost",
        "remap_pending",
        "clock_event_reasons",
    ]
)


@given(st.lists(st.one_of(ODD, st.dictionaries(FIELDS, ODD)), max_size=6), ODD)
def test_whatever_comes_no_figure_is_out_of_range(rows: list[Any], count: object) -> None:
    known = Rows()
    for _ in range(2):
        for gpu in known.take(rows, count):
            assert all(0.0 <= value <= 1.0 for value in gpu.signals.values())
            assert gpu.health.temperature_c is None or 1 <= gpu.health.temperature_c <= 200
            assert gpu.health.remapped_rows is None or gpu.health.remapped_rows >= 0
