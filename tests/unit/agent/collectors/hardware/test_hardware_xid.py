"""A sticky gauge becomes events: once per change, never for what was there before."""

from __future__ import annotations

from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.xid import XidWatch
from headrace_agent.collectors.readings import Health


def gpu(xid: int | None, uuid: str = "GPU-1", instance: str = "") -> GpuFigures:
    return GpuFigures(uuid, instance=instance, health=Health(last_xid=xid))


def test_an_old_xid_at_first_sight_is_no_event() -> None:
    watch = XidWatch()
    assert watch.changes([gpu(79)]) == []
    assert watch.changes([gpu(79)]) == []


def test_a_change_is_told_once() -> None:
    watch = XidWatch()
    watch.changes([gpu(31)])
    assert watch.changes([gpu(79)]) == [("GPU-1", 79)]
    assert watch.changes([gpu(79)]) == []


def test_a_series_that_appears_on_a_known_gpu_is_an_event() -> None:
    watch = XidWatch()
    watch.changes([gpu(None)])
    assert watch.changes([gpu(48)]) == [("GPU-1", 48)]


def test_a_gauge_that_is_cleared_is_no_event_and_arms_again() -> None:
    watch = XidWatch()
    watch.changes([gpu(48)])
    assert watch.changes([gpu(0)]) == []
    assert watch.changes([gpu(48)]) == [("GPU-1", 48)]


def test_gpus_do_not_answer_for_each_other() -> None:
    watch = XidWatch()
    watch.changes([gpu(None), gpu(None, "GPU-2")])
    assert watch.changes([gpu(None), gpu(94, "GPU-2")]) == [("GPU-2", 94)]


def test_an_xid_of_the_gpu_reaches_its_instances_once_each() -> None:
    watch = XidWatch()
    before = [gpu(0), gpu(0, instance="7"), gpu(None, instance="9")]
    watch.changes(before)
    after = [gpu(79), gpu(79, instance="7"), gpu(None, instance="9")]
    assert sorted(watch.changes(after)) == [("GPU-1", 79), ("GPU-1:7", 79), ("GPU-1:9", 79)]
    assert watch.changes(after) == []


def test_an_xid_of_one_instance_leaves_the_others_alone() -> None:
    watch = XidWatch()
    watch.changes([gpu(0), gpu(0, instance="7"), gpu(0, instance="9")])
    assert watch.changes([gpu(0), gpu(43, instance="7"), gpu(0, instance="9")]) == [("GPU-1:7", 43)]
