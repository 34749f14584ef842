"""The decision which source is in force, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace_agent.collectors.hardware.choice import Offer, choose, condition
from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.readings import HardwareSource, SourceReading, Status

GPU = GpuFigures("GPU-1", signals={"gpu_util": 0.5})
LOST = GpuFigures("GPU-1")
DCGM = Offer(HardwareSource.DCGM, SourceReading("dcgm", Status.OK), (GPU,), 1)
NVML = Offer(HardwareSource.NVML, SourceReading("nvml", Status.OK), (GPU,), 1)


def down(offer: Offer, status: Status = Status.FAILED) -> Offer:
    return replace(offer, reading=replace(offer.reading, status=status))


def chosen(*offers: Offer) -> HardwareSource:
    best = choose(offers)
    return HardwareSource.NONE if best is None else best.source


def test_the_exporter_comes_first() -> None:
    assert chosen(DCGM, NVML) is HardwareSource.DCGM


@pytest.mark.parametrize("status", [Status.FAILED, Status.NO_DATA, Status.STALE])
def test_anything_but_ok_counts_at_once(status: Status) -> None:
    assert chosen(down(DCGM, status), NVML) is HardwareSource.NVML
    assert chosen(down(DCGM, status), down(NVML)) is HardwareSource.NONE
    assert chosen(down(DCGM, status)) is HardwareSource.NONE


def test_no_source_at_all_is_none() -> None:
    assert chosen() is HardwareSource.NONE


def test_a_slow_exporter_gives_way_where_nvml_can_and_serves_where_it_cannot() -> None:
    slow = replace(DCGM, slow=True)
    assert chosen(slow, NVML) is HardwareSource.NVML
    assert chosen(slow, down(NVML)) is HardwareSource.DCGM


def test_a_source_just_back_waits_beside_a_stand_in_and_serves_without_one() -> None:
    back = replace(DCGM, settled=False)
    assert chosen(back, NVML) is HardwareSource.NVML
    assert chosen(back, down(NVML)) is HardwareSource.DCGM


def test_all_of_a_cells_gpus_beat_some_of_them() -> None:
    partial = replace(DCGM, asked=2)
    complete = replace(NVML, gpus=(GPU, GPU), asked=2)
    assert chosen(partial, complete) is HardwareSource.NVML
    assert chosen(partial, down(complete)) is HardwareSource.DCGM


def test_a_lost_gpu_has_no_figures_to_be_in_force() -> None:
    assert chosen(replace(NVML, gpus=(LOST,))) is HardwareSource.NONE


def test_a_source_that_is_not_there_is_spare_while_another_gives_all_that_is_asked() -> None:
    absent = replace(down(NVML, Status.NO_DATA), absent=True)
    assert condition(absent, DCGM).spare
    assert not condition(absent, replace(DCGM, asked=2)).spare, "half of the GPUs have no figures"
    assert not condition(absent, None).spare
    assert not condition(down(NVML), DCGM).spare, "it is there, and broken"
    assert not condition(DCGM, DCGM).spare
