"""GPM: the better figures where the GPU has them, and no sample that is not freed."""

from __future__ import annotations

import math

import pynvml
import pytest

from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.nvml.reader import Reader
from headrace_agent.collectors.hardware.nvml.rows import Rows
from tests.unit.agent.collectors.hardware.nvml_fake import FakeNvml

SM, TENSOR, DRAM = 2, 5, 10
UNSUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED


def hopper(gpus: int = 1) -> FakeNvml:
    api = FakeNvml(gpus)
    api.gpm = True
    return api


class Host:
    """A reader that is kept from reading to reading, as samples need it."""

    def __init__(self, api: FakeNvml) -> None:
        self.reader = Reader(api)
        self.rows = Rows()

    def read(self) -> tuple[GpuFigures, ...]:
        answer = self.reader.read()
        return self.rows.take(answer["gpus"], answer["count"])

    def second(self) -> GpuFigures:
        self.read()
        return self.read()[0]


def test_the_first_sample_is_no_figure_and_the_second_gives_all() -> None:
    host = Host(hopper())
    (gpu,) = host.read()
    assert "compute_active" not in gpu.signals
    (gpu,) = host.read()
    assert (gpu.signals["compute_active"], gpu.signals["memory_bw_util"]) == (0.4, 0.6)
    assert gpu.origin["compute_active"] == "GPM_METRIC_ANY_TENSOR_UTIL"
    assert not gpu.weaker_bandwidth


def test_each_metric_has_its_own_return_code() -> None:
    api = hopper()
    api.metrics[TENSOR] = (UNSUPPORTED, 99.0)
    gpu = Host(api).second()
    assert gpu.signals["compute_active"] == 0.8, "SM stands in for tensor"
    api.metrics[SM] = (UNSUPPORTED, 99.0)
    api.metrics[DRAM] = (UNSUPPORTED, 99.0)
    gpu = Host(api).second()
    assert "compute_active" not in gpu.signals
    assert gpu.signals["memory_bw_util"] == 0.25
    assert gpu.weaker_bandwidth


@pytest.mark.parametrize(
    ("value", "share"), [(0.0, 0.0), (100.4, 1.0), (140.0, 0.8), (math.nan, 0.8), (-1.0, 0.8)]
)
def test_a_tensor_figure_a_hair_above_100_is_full_and_an_impossible_one_is_none(
    value: float, share: float
) -> None:
    api = hopper()
    api.metrics[TENSOR] = (0, value)
    assert Host(api).second().signals["compute_active"] == share


def test_samples_are_allocated_once_and_not_for_each_reading() -> None:
    api = hopper(gpus=2)
    host = Host(api)
    for _ in range(50):
        host.read()
    assert api.samples == 4
    assert api.calls.count("nvmlGpmSampleAlloc") == 4


def test_the_samples_of_a_gpu_that_is_gone_are_freed() -> None:
    api = hopper()
    host = Host(api)
    host.second()
    api.errors["nvmlDeviceGetPowerUsage"] = pynvml.NVML_ERROR_GPU_IS_LOST
    host.read()
    assert api.samples == 0
    api.errors.clear()
    assert "compute_active" not in host.read()[0].signals, "a mean over an outage is no figure"
    assert host.read()[0].signals["compute_active"] == 0.4


def test_a_second_sample_that_cannot_be_allocated_frees_the_first() -> None:
    api = hopper()
    allocate = api.nvmlGpmSampleAlloc
    calls: list[int] = []

    def every_other() -> object:
        calls.append(1)
        if len(calls) % 2 == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_MEMORY)
        return allocate()

    api.__dict__["nvmlGpmSampleAlloc"] = every_other
    host = Host(api)
    for _ in range(5):
        host.read()
    assert api.samples == 0


def test_a_sample_that_fails_costs_one_figure_and_leaks_nothing() -> None:
    api = hopper()
    host = Host(api)
    host.second()
    api.errors["nvmlGpmSampleGet"] = pynvml.NVML_ERROR_UNKNOWN
    assert "compute_active" not in host.read()[0].signals
    del api.errors["nvmlGpmSampleGet"]
    assert host.read()[0].signals["compute_active"] == 0.4
    assert api.samples == 2


def test_a_gpu_without_gpm_is_asked_once_whether_it_has_it() -> None:
    api = FakeNvml()
    host = Host(api)
    for _ in range(3):
        host.read()
    assert api.calls.count("nvmlGpmQueryDeviceSupport") == 1
    assert api.samples == 0


def test_an_instance_is_sampled_by_its_id_on_its_gpus_handle() -> None:
    api = hopper()
    api.slices = [3, 5]
    host = Host(api)
    host.read()
    whole, first, _ = host.read()
    assert set(api.asked_samples) == {(0, None), (0, 3), (0, 5)}
    assert first.signals["compute_active"] == 0.4
    assert whole.signals["compute_active"] == 0.4
    assert api.samples == 6
    api.slices = [3]
    host.read()
    assert api.samples == 4, "an instance that was taken away needs none"
