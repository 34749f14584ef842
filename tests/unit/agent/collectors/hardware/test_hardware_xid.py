"""A sticky gauge becomes events: once per change, never for what was there before."""

from __future__ import annotations

from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.xid import MAX_GAUGES, XidWatch
from headrace_agent.collectors.readings import Health


def gpu(xid: int | None, uuid: str = "GPU-1", instance: str = "") -> GpuFigures:
    return GpuFigures(uuid, instance=instance, health=Health(last_xid=xid))


def test_an_old_xid_at_first_sight_is_no_event() -> None:
    watch = XidWatch()
    assert watch.changes([gpu(79)], 0.0) == []
    assert watch.changes([gpu(79)], 0.0) == []


def test_a_change_is_told_once() -> None:
    watch = XidWatch()
    watch.changes([gpu(31)], 0.0)
    assert watch.changes([gpu(79)], 0.0) == [("GPU-1", 79)]
    assert watch.changes([gpu(79)], 0.0) == []


def test_a_series_that_appears_on_a_known_gpu_is_an_event() -> None:
    watch = XidWatch()
    watch.changes([gpu(None)], 0.0)
    assert watch.changes([gpu(48)], 0.0) == [("GPU-1", 48)]


def test_a_gauge_that_is_cleared_is_no_event_and_arms_again() -> None:
    watch = XidWatch()
    watch.changes([gpu(48)], 0.0)
    assert watch.changes([gpu(0)], 0.0) == []
    assert watch.changes([gpu(48)], 0.0) == [("GPU-1", 48)]


def test_a_gpu_that_comes_back_with_an_xid_is_an_event() -> None:
    """One that falls off the bus may be missing from the page for a while: the worst XID of all."""
    watch = XidWatch()
    watch.changes([gpu(None), gpu(31, "GPU-2")], 0.0)
    watch.changes([], 1.0)
    assert watch.changes([gpu(79), gpu(31, "GPU-2")], 2.0) == [("GPU-1", 79)]


def test_gpus_that_come_and_go_are_not_remembered_without_end() -> None:
    watch = XidWatch()
    for turn in range(100):
        watch.changes([gpu(None, f"GPU-{turn}-{number}") for number in range(100)], float(turn))
    assert len(watch._gauges) <= MAX_GAUGES


def test_gpus_do_not_answer_for_each_other() -> None:
    watch = XidWatch()
    watch.changes([gpu(None), gpu(None, "GPU-2")], 0.0)
    assert watch.changes([gpu(None), gpu(94, "GPU-2")], 0.0) == [("GPU-2", 94)]


def test_an_xid_of_the_gpu_reaches_its_instances_once_each() -> None:
    watch = XidWatch()
    before = [gpu(0), gpu(0, instance="7"), gpu(None, instance="9")]
    watch.changes(before, 0.0)
    after = [gpu(79), gpu(79, instance="7"), gpu(None, instance="9")]
    assert sorted(watch.changes(after, 0.0)) == [("GPU-1", 79), ("GPU-1:7", 79), ("GPU-1:9", 79)]
    assert watch.changes(after, 0.0) == []


def test_an_xid_of_one_instance_leaves_the_others_alone() -> None:
    watch = XidWatch()
    watch.changes([gpu(0), gpu(0, instance="7"), gpu(0, instance="9")], 0.0)
    assert watch.changes([gpu(0), gpu(43, instance="7"), gpu(0, instance="9")], 0.0) == [("GPU-1:7", 43)]


def test_what_nvml_told_is_not_told_again_by_a_gauge_that_comes_late() -> None:
    watch = XidWatch()
    watch.changes([gpu(0)], 0.0)
    assert watch.happened("GPU-1", "", 79, [], 10.0) == [("GPU-1", 79)]
    assert watch.changes([gpu(79)], 39.0) == [], "an exporter with its default interval"


def test_what_the_gauge_told_is_not_told_again_by_nvml() -> None:
    watch = XidWatch()
    watch.changes([gpu(0)], 0.0)
    assert watch.changes([gpu(79)], 10.0) == [("GPU-1", 79)]
    assert watch.happened("GPU-1", "", 79, [], 10.2) == []


def test_another_xid_and_another_gpu_are_news() -> None:
    watch = XidWatch()
    watch.changes([gpu(0), gpu(0, "GPU-2")], 0.0)
    watch.happened("GPU-1", "", 31, [], 10.0)
    assert watch.changes([gpu(79), gpu(31, "GPU-2")], 10.5) == [("GPU-1", 79), ("GPU-2", 31)]


def test_the_same_xid_again_later_is_news_and_a_storm_is_not() -> None:
    watch = XidWatch()
    told = [watch.happened("GPU-1", "", 31, [], step * 0.5) for step in range(22)]
    assert [step * 0.5 for step, news in enumerate(told) if news] == [0.0, 5.0, 10.0]


def test_an_xid_told_by_nvml_reaches_the_gpus_instances_and_one_of_an_instance_only_that() -> None:
    watch = XidWatch()
    keys = ["GPU-1", "GPU-1:7", "GPU-1:9"]
    assert watch.happened("GPU-1", "", 79, keys, 0.0) == [(key, 79) for key in keys]
    assert watch.happened("GPU-1", "7", 43, keys, 0.0) == [("GPU-1:7", 43)]


def test_the_last_xid_is_the_one_told_last_of_any_of_the_gpus() -> None:
    watch = XidWatch()
    watch.changes([gpu(48), gpu(0, "GPU-2")], 0.0)
    assert watch.last(["GPU-1", "GPU-2"]) is None, "what gauges held at first sight was told of nobody"
    watch.happened("GPU-2", "", 31, [], 1.0)
    assert watch.last(["GPU-1", "GPU-2"]) == 31
    watch.changes([gpu(13), gpu(0, "GPU-2")], 1.0)
    assert watch.last(["GPU-1", "GPU-2"]) == 13
    assert watch.last(["GPU-2"]) == 31


def test_what_is_remembered_of_a_gpu_does_not_grow_without_end() -> None:
    watch = XidWatch()
    for step in range(1000):
        watch.happened("GPU-1", "", step + 1, [], step * 10.0)
    assert len(watch._told["GPU-1"]) < 10
