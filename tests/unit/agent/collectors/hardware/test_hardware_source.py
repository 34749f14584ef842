"""What a source remembers between two reads is that of the last one."""

from __future__ import annotations

from dataclasses import replace

from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.source import Read, Source
from headrace_agent.collectors.readings import HardwareSource, Status

FIRST = GpuFigures("GPU-a", index=0, signals={"gpu_util": 0.1})
SECOND = GpuFigures("GPU-b", index=1, signals={"gpu_util": 0.2})


def source_of(*gpus: GpuFigures) -> Source:
    source = Source(HardwareSource.NVML, 0.5)
    source.take(Read(Status.OK, gpus), 0.0)
    return source


def test_a_gpu_is_found_with_the_figures_of_the_last_read() -> None:
    source = source_of(FIRST, SECOND)
    assert source.find(1) is SECOND
    later = replace(SECOND, signals={"gpu_util": 0.9})
    source.take(Read(Status.OK, (FIRST, later)), 0.5)
    assert source.find(1) is later


def test_a_gpu_is_found_anew_when_the_gpus_are_others() -> None:
    source = source_of(FIRST, SECOND)
    assert (source.find("GPU-b"), source.find(2)) == (SECOND, None)
    source.take(Read(Status.OK, (SECOND,)), 0.5)
    assert source.find("GPU-b") is SECOND
    moved = replace(SECOND, index=2, aliases=("MIG-c",))
    source.take(Read(Status.OK, (moved,)), 1.0)
    assert (source.find(2), source.find("MIG-c"), source.find(1)) == (moved, moved, None)


def test_its_condition_is_that_of_the_moment_and_of_the_last_read() -> None:
    source = source_of(FIRST)
    assert source.reading(1.0).status is Status.OK
    assert source.reading(60.0).status is Status.STALE
    source.take(Read(Status.FAILED, detail="gone"), 60.0)
    assert source.reading(60.0).detail == "gone"
