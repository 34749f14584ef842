"""NVML's figures, and all the ways in which it has none."""

from __future__ import annotations

import pynvml
import pytest

from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.nvml.calls import NvmlError
from headrace_agent.collectors.hardware.nvml.reader import Reader
from headrace_agent.collectors.hardware.nvml.rows import Rows
from tests.unit.agent.collectors.hardware.nvml_fake import FakeNvml


def figures(api: FakeNvml) -> tuple[GpuFigures, ...]:
    answer = Reader(api).read()
    return Rows().take(answer["gpus"], answer["count"])


def test_a_healthy_gpu_gives_every_figure_in_the_units_of_the_catalogue() -> None:
    (gpu,) = figures(FakeNvml())
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
    assert (health.remap_pending, health.remap_failed) == (True, False)
    assert (health.ecc_correctable, health.ecc_uncorrectable) == (10, 11)
    assert not health.gpu_lost


def test_what_is_not_supported_is_missing_and_the_rest_stays() -> None:
    api = FakeNvml()
    for name in ("UtilizationRates", "TotalEccErrors", "PowerUsage", "RemappedRows", "PcieReplayCounter"):
        api.errors[f"nvmlDeviceGet{name}"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    (gpu,) = figures(api)
    assert gpu.signals.keys() == {"vram_util"}
    assert not gpu.weaker_bandwidth
    health = gpu.health
    assert (health.power_w, health.ecc_correctable, health.remapped_rows, health.pcie_replays) == (None,) * 4
    assert health.remap_pending is None
    assert health.temperature_c == 66


def test_old_drivers_know_some_figures_by_another_name() -> None:
    api = FakeNvml()
    api.errors["nvmlDeviceGetCurrentClocksEventReasons"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    api.errors["nvmlDeviceGetTemperatureV"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    health = figures(api)[0].health
    assert (health.clock_event_reasons, health.temperature_c) == (0x8, 67)


def test_a_function_that_the_driver_does_not_have_is_asked_for_once() -> None:
    api = FakeNvml(gpus=2)
    api.errors["nvmlDeviceGetTemperatureV"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    reader = Reader(api)
    for _ in range(3):
        reader.read()
    assert api.calls.count("nvmlDeviceGetTemperatureV") == 1


def test_old_drivers_do_not_tell_what_memory_is_reserved() -> None:
    api = FakeNvml()
    memory = api.nvmlDeviceGetMemoryInfo

    def only_the_first_version(handle: object, version: int | None = None) -> object:
        if version:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return memory(handle)

    api.__dict__["nvmlDeviceGetMemoryInfo"] = only_the_first_version
    reader = Reader(api)
    for _ in range(2):
        answer = reader.read()
        assert Rows().take(answer["gpus"], 1)[0].signals["vram_util"] == 32_000 / 80_000


def test_without_a_margin_the_slowdown_threshold_gives_one() -> None:
    api = FakeNvml()
    api.absent.add("nvmlDeviceGetMarginTemperature")
    assert figures(api)[0].health.thermal_margin_c == 90 - 66


def test_pcie_throughput_is_never_asked_for() -> None:
    api = FakeNvml()
    figures(api)
    assert not [name for name in api.calls if "Throughput" in name], "each such call takes 20 ms"


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
@pytest.mark.parametrize("where", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetTemperatureV"])
def test_a_gpu_that_falls_off_the_bus_is_lost_by_its_own_name(code: int, where: str) -> None:
    api, rows = FakeNvml(), Rows()
    reader = Reader(api)
    rows.take(reader.read()["gpus"], 1)
    api.errors[where] = code
    (gpu,) = rows.take(reader.read()["gpus"], 1)
    assert gpu.health.gpu_lost
    assert (gpu.uuid, gpu.index, gpu.name) == ("GPU-0", 0, "Fake GPU")
    assert gpu.signals == {}


def test_a_gpu_that_may_not_be_opened_is_left_out() -> None:
    api = FakeNvml(gpus=2)
    api.errors["nvmlDeviceGetHandleByIndex"] = pynvml.NVML_ERROR_NO_PERMISSION
    assert figures(api) == ()


def test_a_host_without_the_library_says_so() -> None:
    api = FakeNvml()
    api.errors["nvmlInit"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    with pytest.raises(NvmlError, match="no NVML library") as caught:
        Reader(api).start()
    assert caught.value.absent


def test_a_driver_that_is_not_loaded_is_a_failure_and_not_an_absence() -> None:
    api = FakeNvml()
    api.errors["nvmlInit"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(NvmlError, match="Driver Not Loaded") as caught:
        Reader(api).start()
    assert not caught.value.absent


@pytest.mark.parametrize("code", ["UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"])
@pytest.mark.parametrize("where", ["nvmlDeviceGetCount", "nvmlDeviceGetPowerUsage"])
def test_a_library_that_lost_its_state_is_no_use_any_more(code: str, where: str) -> None:
    api = FakeNvml()
    reader = Reader(api)
    reader.read()
    api.errors[where] = getattr(pynvml, f"NVML_ERROR_{code}")
    with pytest.raises(NvmlError, match=where):
        reader.read()


def test_impossible_figures_are_missing() -> None:
    api = FakeNvml()
    api.gpus = 80  # utilisation of the fake is 40 + index: from 61 on it cannot be
    gpus = figures(api)
    assert len(gpus) == 64, "a count that no host has is cut"
    assert gpus[60].signals["gpu_util"] == 1.0
    assert "gpu_util" not in gpus[61].signals


def test_a_gpu_to_be_left_alone_is_not_called_at_all() -> None:
    api = FakeNvml(gpus=3)
    asked: list[str] = []
    answer = Reader(api, asked.append).read(without=[1])
    assert [row["index"] for row in answer["gpus"]] == [0, 2]
    assert not [each for each in asked if each.startswith("1 ")]


def test_each_call_is_noted_before_it_is_made_and_cleared_after() -> None:
    api, noted = FakeNvml(), [""]
    api.hooks["nvmlDeviceGetPowerUsage"] = lambda: noted.append(f"in the call: {noted[-1]}")
    Reader(api, noted.append).read()
    assert "in the call: 0 nvmlDeviceGetPowerUsage" in noted
    assert noted[-1] == ""


def test_mig_instances_are_rows_with_their_own_memory_and_their_gpus_health() -> None:
    api = FakeNvml(gpus=2)
    api.slices = [3, 5]
    whole, first, second, other = figures(api)
    assert [gpu.key for gpu in (whole, first, second, other)] == ["GPU-0", "GPU-0:3", "GPU-0:5", "GPU-1"]
    assert (first.memory_mib, first.aliases, second.aliases) == (20_000, ("MIG-0",), ("MIG-1",))
    assert first.signals == pytest.approx({"vram_util": 31_000 / 79_000})
    assert first.health == whole.health, "temperature, power and the like are the GPU's"
    assert other.aliases == ()


def test_compute_instances_within_one_gpu_instance_are_one_row() -> None:
    api = FakeNvml()
    api.slices = [3, 5, 5]
    gpus = figures(api)
    assert [gpu.key for gpu in gpus] == ["GPU-0", "GPU-0:3", "GPU-0:5"]
    assert gpus[2].aliases == ("MIG-1", "MIG-2")


def test_a_host_is_described_with_its_versions_processes_and_instances() -> None:
    api = FakeNvml(gpus=2)
    api.slices, api.gpm = [3], True
    api.errors["nvmlDeviceGetComputeRunningProcesses_v3"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    found = Reader(api).describe()
    assert (found["driver"], found["library"]) == ("999.1", "13.999.1")
    assert [(row["index"], row.get("instance")) for row in found["gpus"]] == [(0, None), (0, "3"), (1, None)]
    assert [row["pids"] for row in found["gpus"]] == [[7], [7], [7]], "by the older drivers' name"
    assert found["gpus"][0]["gpm"]


def test_a_lost_gpu_is_described_as_lost() -> None:
    api = FakeNvml()
    api.errors["nvmlDeviceGetUUID"] = pynvml.NVML_ERROR_GPU_IS_LOST
    assert Reader(api).describe()["gpus"] == [{"index": 0, "lost": True}]
