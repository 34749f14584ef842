"""The NVML process over a stub library: what the real binding reads, and every way to lose it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.nvml import link, process
from headrace_agent.collectors.hardware.nvml.process import Limits, NvmlProcess
from headrace_agent.collectors.hardware.source import Read
from headrace_agent.collectors.readings import Status
from headrace_shared.clock import SystemClock
from tests.integration.agent_hardware.nvml_stub import Stub, built

NOT_SUPPORTED, GPU_IS_LOST, RESET_REQUIRED, DRIVER_NOT_LOADED, UNINITIALIZED = 3, 15, 16, 9, 1
# A reading that does not hang comes within `read_s` on a busy machine, too.
QUICK = Limits(
    read_s=10.0, first_pause_s=0.1, longest_pause_s=0.2, absent_pause_s=0.1, shun_s=0.5, longest_shun_s=0.5
)
IMPATIENT = replace(QUICK, read_s=1.5)
WITHIN_S = 40.0


def name(pid: int) -> str:
    """What a process is listed as; "" where there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


class Host:
    """An NVML process that is read again and again."""

    def __init__(self, limits: Limits) -> None:
        self.xids: list[tuple[str, str, int]] = []
        self.nvml = NvmlProcess(SystemClock(), lambda *xid: self.xids.append(xid), limits)

    async def until(self, wanted: Callable[[Read], bool]) -> Read:
        """Read until a reading is as wanted."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                read = await self.nvml.read()
                if wanted(read):
                    return read
                await asyncio.sleep(0.02)

    async def until_ok(self, gpus: int = 1) -> tuple[GpuFigures, ...]:
        read = await self.until(lambda read: read.status is Status.OK and len(read.gpus) == gpus)
        return read.gpus

    async def until_failed(self, said: str) -> str:
        read = await self.until(lambda read: read.status is Status.FAILED and said in read.detail)
        return read.detail

    async def until_xid(self, count: int) -> None:
        async with asyncio.timeout(WITHIN_S):
            while len(self.xids) < count:
                await self.nvml.read()
                await asyncio.sleep(0.02)


@asynccontextmanager
async def host(limits: Limits = QUICK) -> AsyncIterator[Host]:
    running = Host(limits)
    try:
        yield running
    finally:
        pid = running.nvml.pid
        await running.nvml.close()
        assert not pid or not name(pid), "the process outlives its agent"


async def test_a_healthy_gpu_by_the_real_binding_on_an_older_driver(stub: Stub) -> None:
    async with host() as run:
        (gpu,) = await run.until_ok()
    assert (gpu.uuid, gpu.name, gpu.index, gpu.memory_mib) == ("GPU-stub-0", "Stub GPU", 0, 1000)
    assert gpu.signals == {"vram_util": 0.25, "gpu_util": 0.42, "memory_bw_util": 0.17}
    health = gpu.health
    assert (health.temperature_c, health.power_w, health.power_limit_w) == (71, 123.456, 400.0)
    assert (health.clock_event_reasons, health.pcie_replays) == (0x40, 9)
    assert (health.ecc_correctable, health.ecc_uncorrectable, health.remapped_rows) == (5, 2, 3)
    assert (health.remap_pending, health.remap_failed, health.thermal_margin_c) == (True, False, None)
    assert not health.gpu_lost


async def test_a_newer_driver_has_the_newer_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stub(tmp_path, built("-DNEWER"), monkeypatch)
    async with host() as run:
        (gpu,) = await run.until_ok()
    health = gpu.health
    assert (health.temperature_c, health.thermal_margin_c, health.clock_event_reasons) == (72, 13, 0x4)


async def test_gpm_gives_tensor_and_bandwidth_and_leaks_no_sample(stub: Stub) -> None:
    stub.set(gpm=1, gpus=2)
    async with host() as run:
        gpus = await run.until_ok(gpus=2)
        assert "compute_active" not in gpus[0].signals, "one sample is no figure"
        for _ in range(20):
            gpus = (await run.nvml.read()).gpus
        assert stub.samples == 4
        assert [gpu.signals["compute_active"] for gpu in gpus] == [0.415, 0.415]
        assert [gpu.signals["memory_bw_util"] for gpu in gpus] == [0.61, 0.61]
        stub.metric(5, NOT_SUPPORTED)
        assert (await run.nvml.read()).gpus[0].signals["compute_active"] == 0.8025, "SM stands in"
        stub.fail("nvmlDeviceGetHandleByIndex_v2", GPU_IS_LOST, gpu=1)
        await run.nvml.read()
        assert stub.samples == 2, "those of a lost GPU are freed"


async def test_mig_instances_have_their_own_memory_activity_and_names(stub: Stub) -> None:
    stub.set(mig=1, gpm=1)
    async with host() as run:
        await run.until_ok(gpus=3)
        whole, first, second = (await run.nvml.read()).gpus
    assert [gpu.key for gpu in (whole, first, second)] == ["GPU-stub-0", "GPU-stub-0:3", "GPU-stub-0:5"]
    assert (first.aliases, second.aliases) == (("MIG-stub-0",), ("MIG-stub-1", "MIG-stub-2"))
    assert (first.memory_mib, first.signals["vram_util"]) == (250, 0.5)
    assert (first.signals["compute_active"], second.signals["compute_active"]) == (0.445, 0.465)
    assert "gpu_util" not in whole.signals, "not supported under MIG"
    assert first.health == whole.health


async def test_a_split_gpu_that_is_lost_takes_its_instances_with_it(stub: Stub) -> None:
    stub.set(mig=1)
    async with host() as run:
        await run.until_ok(gpus=3)
        stub.fail("nvmlDeviceGetPowerUsage", GPU_IS_LOST)
        gpus = (await run.nvml.read()).gpus
    assert [(gpu.key, gpu.health.gpu_lost) for gpu in gpus] == [
        ("GPU-stub-0", True),
        ("GPU-stub-0:3", True),
        ("GPU-stub-0:5", True),
    ]


async def test_what_a_gpu_does_not_support_is_missing(stub: Stub) -> None:
    for name in ("UtilizationRates", "PowerUsage", "TotalEccErrors", "RemappedRows", "MemoryInfo_v2"):
        stub.fail(f"nvmlDeviceGet{name}", NOT_SUPPORTED)
    async with host() as run:
        (gpu,) = await run.until_ok()
    assert gpu.signals == {}
    assert (gpu.health.power_w, gpu.health.ecc_correctable, gpu.health.remap_failed) == (None, None, None)
    assert gpu.health.temperature_c == 71


@pytest.mark.parametrize("code", [GPU_IS_LOST, RESET_REQUIRED])
async def test_a_gpu_lost_while_running_is_lost_by_name_and_the_other_goes_on(stub: Stub, code: int) -> None:
    stub.set(gpus=2)
    async with host() as run:
        await run.until_ok(gpus=2)
        stub.fail("nvmlDeviceGetPowerUsage", code, gpu=0)
        lost, other = sorted((await run.nvml.read()).gpus, key=lambda gpu: gpu.index or 0)
        assert (lost.uuid, lost.health.gpu_lost, lost.signals) == ("GPU-stub-0", True, {})
        assert other.signals["gpu_util"] == 0.42
        stub.mend()
        assert not (await run.nvml.read()).gpus[0].health.gpu_lost


async def test_a_call_that_hangs_is_ended_named_and_forgiven_when_it_hangs_no_more(stub: Stub) -> None:
    async with host(IMPATIENT) as run:
        await run.until_ok()
        first = run.nvml.pid
        stub.fail("nvmlDeviceGetTemperature", "hang")
        said = await run.until_failed("nvmlDeviceGetTemperature of GPU 0")
        assert "hangs" in said
        assert not name(first), "the process that hung is gone"
        stub.mend()
        await run.until_ok()


async def test_a_gpu_that_hangs_does_not_take_the_others_figures(stub: Stub) -> None:
    stub.set(gpus=2)
    async with host(Limits(read_s=IMPATIENT.read_s, first_pause_s=0.1, shun_s=60)) as run:
        await run.until_ok(gpus=2)
        stub.fail("nvmlDeviceGetPowerUsage", "hang", gpu=0)
        await run.until_failed("of GPU 0")
        (other,) = await run.until_ok()
        assert other.uuid == "GPU-stub-1"
        read = await run.nvml.read()
        assert "GPU 0 is left alone for 60 s" in read.detail
        assert read.status is Status.OK


async def test_a_call_that_crashes_ends_its_process_alone_and_nvml_comes_back(stub: Stub) -> None:
    async with host() as run:
        await run.until_ok()
        stub.fail("nvmlDeviceGetPcieReplayCounter", "crash")
        said = await run.until_failed("crashed")
        assert "nvmlDeviceGetPcieReplayCounter of GPU 0 (SIGSEGV)" in said
        stub.mend()
        await run.until_ok()


async def test_a_process_that_was_well_for_long_is_followed_by_the_next_at_once(stub: Stub) -> None:
    async with host(Limits(well_s=0.0, first_pause_s=600)) as run:
        await run.until_ok()
        os.kill(run.nvml.pid, signal.SIGKILL)
        await run.until_failed("SIGKILL")
        assert run.nvml.rest_s == 0.0
        await run.until_ok()


async def test_a_process_that_fails_again_and_again_is_started_less_and_less_often(stub: Stub) -> None:
    stub.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
    async with host(Limits(first_pause_s=0.2, longest_pause_s=0.6)) as run:
        pauses = []
        for _ in range(4):
            await run.nvml.read()
            pauses.append(run.nvml._pause_s)
            assert run.nvml.rest_s <= pauses[-1]
            # A timer may come before its time by what the clock does not tell apart.
            await asyncio.sleep(run.nvml.rest_s + 0.01)
    assert pauses == pytest.approx([0.2, 0.4, 0.6, 0.6])


async def test_a_start_that_hangs_is_given_up_and_tried_again(stub: Stub) -> None:
    stub.fail("nvmlInitWithFlags", "hang")
    async with host(Limits(start_s=6.0, first_pause_s=0.1, longest_pause_s=0.2)) as run:
        await run.until_failed("hangs in nvmlInit")
        stub.mend()
        await run.until_ok()


async def test_a_driver_that_is_reloaded_is_found_again_by_a_new_process(stub: Stub) -> None:
    async with host() as run:
        await run.until_ok()
        first = run.nvml.pid
        stub.fail("nvmlDeviceGetPowerUsage", UNINITIALIZED)
        stub.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
        await run.until_failed("nvmlDeviceGetPowerUsage")
        await run.until_failed("NVML does not start")
        stub.mend()
        await run.until_ok()
        assert run.nvml.pid != first


async def test_a_gpu_missing_after_a_restart_is_lost(stub: Stub) -> None:
    stub.set(gpus=2)
    async with host() as run:
        await run.until_ok(gpus=2)
        stub.set(gpus=1)
        os.kill(run.nvml.pid, signal.SIGKILL)
        await run.until_failed("SIGKILL")
        gpus = await run.until_ok(gpus=2)
        assert [gpu.uuid for gpu in gpus if gpu.health.gpu_lost] == ["GPU-stub-1"]


async def test_an_xid_is_told_at_once_with_its_gpu_and_instance(stub: Stub) -> None:
    stub.set(gpus=2)
    stub.fire(13)
    async with host() as run:
        await run.until_ok(gpus=2)
        stub.fire(79, gpu=1)
        await run.until_xid(1)
        assert run.xids == [("GPU-stub-1", "", 79)], "and not the one from before the agent began"
        stub.fire(43, gpu=0, instance=3)
        await run.until_xid(2)
        assert run.xids[1] == ("GPU-stub-0", "3", 43)


async def test_xids_are_listened_to_again_after_a_crash(stub: Stub) -> None:
    async with host() as run:
        await run.until_ok()
        stub.fail("nvmlEventSetWait_v2", "crash")
        await run.until_failed("crashed in the wait for XIDs")
        stub.mend()
        await run.until_ok()
        stub.fire(48)
        await run.until_xid(1)
        assert run.xids == [("GPU-stub-0", "", 48)]


async def test_a_wait_for_xids_that_hangs_is_noticed_while_the_figures_go_on(stub: Stub) -> None:
    async with host(Limits(watch_s=2.5, first_pause_s=0.1)) as run:
        await run.until_ok()
        stub.fail("nvmlEventSetWait_v2", "hang")
        await run.until_failed("hangs in the wait for XIDs")
        stub.mend()
        await run.until_ok()


async def test_xids_that_cannot_be_listened_to_are_said(stub: Stub) -> None:
    stub.fail("nvmlDeviceRegisterEvents", NOT_SUPPORTED)
    async with host() as run:
        read = await run.until(lambda read: read.status is Status.OK)
        assert read.detail.startswith("XIDs are not listened to: GPU 0 tells of no XIDs")


async def test_the_process_has_a_name_and_ends_with_its_input(stub: Stub) -> None:
    async with host() as run:
        await run.until_ok()
        pid = run.nvml.pid
        assert name(pid) == "headrace-nvml"
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        await run.until_ok()
        assert run.nvml.pid == pid, "signals to the whole group are the agent's to follow"


async def test_a_process_that_says_what_is_no_message_is_replaced(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = link.command
    monkeypatch.setattr(link, "command", lambda fd: ["/bin/sh", "-c", "echo Segmentation fault; sleep 60"])
    async with host() as run:
        await run.until_failed("a message of")
        monkeypatch.setattr(link, "command", real)
        await run.until_ok()


async def test_a_process_that_cannot_be_started_is_a_failure_in_words(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "command", lambda fd: ["/nowhere/python"])
    async with host() as run:
        await run.until_failed("cannot be started")


async def test_a_process_stuck_in_the_driver_is_not_followed_by_a_second(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that the kernel does not interrupt outlives even SIGKILL; a kill that does nothing stands
    for it."""
    async with host(IMPATIENT) as run:
        await run.until_ok()
        first = run.nvml.pid
        with monkeypatch.context() as patch:
            patch.setattr(subprocess.Popen, "send_signal", lambda self, number: None)
            stub.fail("nvmlDeviceGetTemperature", "hang")
            await run.until_failed(f"NVML process {first} is stuck in the driver")
            for _ in range(10):
                await run.until_failed("is stuck in the driver")
            assert run.nvml.pid == 0
            assert name(first) == "headrace-nvml"
        os.kill(first, signal.SIGKILL)
        stub.mend()
        await run.until_ok()


async def test_a_host_without_the_library_has_no_process_after_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable library stands for none, so that the test means the same on a GPU host."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(process, "is_visible", lambda: False)
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    started: list[int] = []
    real = link.command

    def counted(recorder_fd: int) -> list[str]:
        started.append(recorder_fd)
        return real(recorder_fd)

    monkeypatch.setattr(link, "command", counted)
    async with host(Limits(absent_pause_s=0.05)) as run:
        for _ in range(5):
            read = await run.nvml.read()
            assert (read.status, read.detail) == (Status.NO_DATA, "no NVML library on this host")
            assert read.absent
            await asyncio.sleep(0.06)
        assert len(started) == 1
        (tmp_path / "libnvidia-ml.so.1").unlink()
        Stub(tmp_path, built(), monkeypatch)
        monkeypatch.setattr(process, "is_visible", lambda: True)
        await run.until_ok()


async def test_no_descriptor_is_left_of_processes_that_failed(stub: Stub) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async with host() as run:
        await run.until_ok()
        before = open_files()
        for _ in range(3):
            os.kill(run.nvml.pid, signal.SIGKILL)
            await run.until_failed("SIGKILL")
            await run.until_ok()
        assert open_files() <= before
