"""The GPUs of a host, described for the commands; and what an agent's end does to its NVML process."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_agent.collectors.hardware.nvml.calls import NvmlError
from headrace_agent.collectors.hardware.nvml.host import describe_gpus, describe_host
from tests.integration.agent_hardware.nvml_stub import Stub

GPU_IS_LOST = 15

AGENT = """
import asyncio, os, sys
from headrace_agent.collectors.hardware.nvml.process import NvmlProcess
from headrace_shared.clock import SystemClock

async def main():
    nvml = NvmlProcess(SystemClock())
    while not (await nvml.read()).gpus:
        await asyncio.sleep(0.05)
    print(nvml.pid, flush=True)
    sys.stdin.read()
    hanging = asyncio.create_task(nvml.read())
    await asyncio.sleep(0.5)
    os._exit(1)

asyncio.run(main())
"""


def test_gpus_instances_and_processes_are_described(stub: Stub) -> None:
    stub.set(gpus=2, mig=1, gpm=1)
    host = describe_host()
    assert (host.driver, host.library) == ("999.1", "13.999")
    split, whole = host.gpus
    assert (split.index, split.uuid, split.name, split.memory_mib) == (0, "GPU-stub-0", "Stub GPU", 1000)
    assert [each.instance for each in split.instances] == ["3", "5"]
    assert split.instances[1].uuids == ("MIG-stub-1", "MIG-stub-2")
    assert split.instances[1].pids == (4000, 5001, 5002)
    assert (whole.pids, whole.instances, whole.gpm) == ((4001, 4999), (), True)


def test_a_lost_gpu_is_described_beside_the_others(stub: Stub) -> None:
    stub.set(gpus=2)
    stub.fail("nvmlDeviceGetUUID", GPU_IS_LOST, gpu=0)
    lost, other = describe_gpus()
    assert (lost.index, lost.lost, lost.uuid) == (0, True, "")
    assert (other.lost, other.uuid) == (False, "GPU-stub-1")


def test_a_call_that_hangs_is_ended_and_named(stub: Stub) -> None:
    stub.fail("nvmlDeviceGetName", "hang")
    with pytest.raises(NvmlError, match="NVML hangs in nvmlDeviceGetName of GPU 0"):
        describe_gpus(timeout_s=8.0)


def test_a_call_that_crashes_is_named(stub: Stub) -> None:
    stub.fail("nvmlDeviceGetComputeRunningProcesses_v3", "crash")
    with pytest.raises(NvmlError, match="crashed in nvmlDeviceGetComputeRunningProcesses_v3 of GPU 0"):
        describe_gpus()


def test_a_host_without_the_library_is_absent_and_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(NvmlError, match="no NVML library") as caught:
        describe_gpus()
    assert caught.value.absent


@pytest.mark.parametrize("hangs", [False, True])
def test_the_process_ends_with_its_agent_however_that_ends(stub: Stub, hangs: bool) -> None:
    agent = subprocess.Popen([sys.executable, "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with agent:
        assert agent.stdout is not None
        assert agent.stdin is not None
        pid = int(agent.stdout.readline())
        if hangs:
            stub.fail("nvmlDeviceGetName", "hang")
            stub.fail("nvmlDeviceGetPowerUsage", "hang")
        agent.stdin.close()
        agent.wait(60)
    try:
        ending = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([ending], [], [], 60)
    os.close(ending)
    assert ended, "the process goes on without its agent"
