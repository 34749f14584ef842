"""Which GPU a cell means, and the worst of several."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.hardware.figures import (
    GpuFigures,
    GpuRef,
    explain_missing,
    fill,
    find,
    worst_health,
    worst_signals,
)
from headrace_agent.collectors.readings import Health

GPUS = (
    GpuFigures("GPU-aaaa-1", 0),
    GpuFigures("GPU-aabb-2", 1),
    GpuFigures("GPU-cccc-3", 2),
    GpuFigures("GPU-cccc-3", 2, instance="7", aliases=("MIG-e0f1-a",)),
    GpuFigures("GPU-cccc-3", 2, instance="13", aliases=("MIG-e0f1-b", "MIG-77aa-c")),
)


@pytest.mark.parametrize(
    ("ref", "key"),
    [
        (0, "GPU-aaaa-1"),
        ("1", "GPU-aabb-2"),
        ("GPU-aaaa-1", "GPU-aaaa-1"),
        ("gpu-AABB", "GPU-aabb-2"),
        ("GPU-cccc-3", "GPU-cccc-3"),
        ("GPU-cccc-3:13", "GPU-cccc-3:13"),
        ("GPU-cc:7", "GPU-cccc-3:7"),
        ("2:7", "GPU-cccc-3:7"),
        ("MIG-77aa-c", "GPU-cccc-3:13"),
        ("mig-E0F1-A", "GPU-cccc-3:7"),
        ("MIG-77", "GPU-cccc-3:13"),
        ("MIG-e0f1", None),
        ("MIG-0", None),
        ("MIG-GPU-cccc-3/7/0", "GPU-cccc-3:7"),
        ("GPU-aa", None),
        ("GPU-cccc-3:1", None),
        (9, None),
        ("", None),
    ],
)
def test_a_gpu_is_found_by_index_uuid_its_start_and_instance(ref: GpuRef, key: str | None) -> None:
    found = find(GPUS, ref)
    assert (found.key if found else None) == key


def test_a_whole_uuid_is_not_ambiguous_where_another_starts_with_it() -> None:
    gpus = (GpuFigures("GPU-1"), GpuFigures("GPU-12"))
    found = find(gpus, "GPU-1")
    assert found is not None
    assert found.uuid == "GPU-1"


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("GPU-aa", "write more of the UUID"),
        ("GPU-cccc-3:1", "the instances seen are 13, 7"),
        (9, "has no figures"),
        ("MIG-77aa-d", "told by NVML alone"),
    ],
)
def test_a_reference_that_fits_nothing_is_explained(ref: GpuRef, said: str) -> None:
    assert said in explain_missing(GPUS, ref)


def test_a_gpu_that_only_its_instances_tell_of_must_be_named_by_instance() -> None:
    assert "name the instance, as in GPU-1:5" in explain_missing([GpuFigures("GPU-1", instance="5")], "GPU-1")


def test_the_worst_signal_is_the_highest_and_a_missing_one_is_no_zero() -> None:
    gpus = [
        GpuFigures("a", signals={"gpu_util": 0.2, "vram_util": 0.9}),
        GpuFigures("b", signals={"gpu_util": 0.7}),
    ]
    assert worst_signals(gpus) == {"gpu_util": 0.7, "vram_util": 0.9}
    assert worst_signals([]) == {}


def test_the_worst_health_field_by_field_and_power_with_its_own_limit() -> None:
    hot = Health(temperature_c=85, power_w=300, power_limit_w=700, clock_event_reasons=4, last_xid=0)
    tight = Health(temperature_c=60, power_w=340, power_limit_w=350, clock_event_reasons=0x40, last_xid=31)
    health = worst_health([GpuFigures("a", health=hot), GpuFigures("b", health=tight)])
    assert health is not None
    assert (health.temperature_c, health.power_w, health.power_limit_w) == (85, 340, 350)
    assert (health.clock_event_reasons, health.last_xid) == (0x44, 31)
    assert health.pcie_replays is None
    assert worst_health([]) is None


def test_a_remapping_that_failed_on_one_gpu_counts_for_the_set() -> None:
    gpus = [
        GpuFigures("a", health=Health(remap_failed=False)),
        GpuFigures("b", health=Health(remap_failed=True)),
    ]
    health = worst_health([*gpus, GpuFigures("c")])
    assert health is not None
    assert (health.remap_failed, health.remap_pending) == (True, None)


def test_filling_takes_only_what_is_missing_and_keeps_a_loss_from_either() -> None:
    filled = fill(Health(temperature_c=50), Health(temperature_c=70, power_w=10, gpu_lost=True))
    assert (filled.temperature_c, filled.power_w, filled.gpu_lost) == (50, 10, True)
