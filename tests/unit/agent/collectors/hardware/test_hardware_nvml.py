"""NVML's figures, and all the ways in which it has none."""

from __future__ import annotations

import pynvml
import pytest

from headrace_agent.collectors.hardware.nvml import NvmlError, NvmlReader
from tests.unit.agent.collectors.hardware.nvml_fake import FakeNvml


def test_a_healthy_gpu_gives_every_figure_in_the_units_of_the_catalogue() -> None:
    (gpu,) = NvmlReader(FakeNvml()).read()
    assert (gpu.uuid, gpu.index, gpu.name, gpu.memory_mib) == ("GPU-0", 0, "Fake GPU", 80_000)
    assert gpu.signals == pytest.approx(
        {"gpu_util": 0.40, "memory_bw_util": 0.25, "vram_util": 31_000 / 79_000}
    )
    assert gpu.weaker_bandwidth, "time in which memory was accessed is not bandwidth"
    assert "compute_active" not in gpu.signals
    health = gpu.health
    assert (health.temperature_c, health.thermal_margin_c) == (66, 21)
    assert (health.power_w, health.power_limit_w) == (350.5, 700.0)
    assert (health.clock_event_reasons, health.pcie_replays, health.remapped_rows) == (0x4, 3, 3)
    assert (health.ecc_correctable, health.ecc_uncorrectable) == (10, 11)
    assert not health.gpu_lost


def test_what_is_not_supported_is_missing_and_the_rest_stays() -> None:
    api = FakeNvml()
    for name in ("UtilizationRates", "TotalEccErrors", "PowerUsage", "RemappedRows", "PcieReplayCounter"):
        api.errors[f"nvmlDeviceGet{name}"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    (gpu,) = NvmlReader(api).read()
    assert gpu.signals.keys() == {"vram_util"}
    assert not gpu.weaker_bandwidth
    health = gpu.health
    assert (health.power_w, health.ecc_correctable, health.remapped_rows, health.pcie_replays) == (None,) * 4
    assert health.temperature_c == 66


def test_old_drivers_know_some_figures_by_another_name() -> None:
    api = FakeNvml()
    api.errors["nvmlDeviceGetCurrentClocksEventReasons"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    api.errors["nvmlDeviceGetTemperatureV"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    health = NvmlReader(api).read()[0].health
    assert (health.clock_event_reasons, health.temperature_c) == (0x8, 66)


def test_without_a_margin_the_slowdown_threshold_gives_one() -> None:
    api = FakeNvml()
    api.absent.add("nvmlDeviceGetMarginTemperature")
    assert NvmlReader(api).read()[0].health.thermal_margin_c == 90 - 66


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
@pytest.mark.parametrize("where", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetTemperatureV"])
def test_a_gpu_that_falls_off_the_bus_is_lost_by_its_own_name(code: int, where: str) -> None:
    api = FakeNvml()
    reader = NvmlReader(api)
    reader.read()
    api.errors[where] = code
    (gpu,) = reader.read()
    assert gpu.health.gpu_lost
    assert (gpu.uuid, gpu.index, gpu.name) == ("GPU-0", 0, "Fake GPU")
    assert gpu.signals == {}


def test_a_gpu_that_may_not_be_opened_is_left_out() -> None:
    api = FakeNvml(gpus=2)
    api.errors["nvmlDeviceGetHandleByIndex"] = pynvml.NVML_ERROR_NO_PERMISSION
    assert NvmlReader(api).read() == ()


def test_a_host_without_the_library_says_so() -> None:
    api = FakeNvml()
    api.errors["nvmlInit"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    with pytest.raises(NvmlError, match="no NVML library") as caught:
        NvmlReader(api).read()
    assert caught.value.absent


def test_a_driver_that_is_not_loaded_is_a_failure_and_not_an_absence() -> None:
    api = FakeNvml()
    api.errors["nvmlInit"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(NvmlError, match="Driver Not Loaded") as caught:
        NvmlReader(api).read()
    assert not caught.value.absent


@pytest.mark.parametrize("where", ["nvmlDeviceGetCount", "nvmlDeviceGetUUID"])
def test_a_library_that_lost_its_state_is_started_again(where: str) -> None:
    api = FakeNvml()
    reader = NvmlReader(api)
    reader.read()
    api.errors[where] = pynvml.NVML_ERROR_UNINITIALIZED
    with pytest.raises(NvmlError, match=where):
        reader.read()
    api.errors.clear()
    assert len(reader.read()) == 1
    assert api.calls.count("nvmlInit") == 2


def test_impossible_figures_are_missing() -> None:
    api = FakeNvml(gpus=1)
    api.gpus = 80  # utilisation of the fake is 40 + index: from 61 on it cannot be
    gpus = NvmlReader(api).read()
    assert len(gpus) == 64, "a count that no host has is cut"
    assert gpus[60].signals["gpu_util"] == 1.0
    assert "gpu_util" not in gpus[61].signals


def test_closing_twice_shuts_the_library_down_once() -> None:
    api = FakeNvml()
    reader = NvmlReader(api)
    reader.read()
    reader.close()
    reader.close()
    assert api.calls.count("nvmlShutdown") == 1
