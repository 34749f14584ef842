"""The real NVML binding over a stub library: structures, units and errors as pynvml has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import dataclasses, json, pynvml
from headrace_agent.collectors.hardware.nvml import NvmlError, NvmlReader

reader = NvmlReader(pynvml)
try:
    gpus = [dataclasses.asdict(gpu) for gpu in reader.read()]
except NvmlError as error:
    gpus = {"error": str(error), "absent": error.absent}
print(json.dumps(gpus))
reader.close()
"""


def read(**environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a freshly built stub."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml_stub.c")
    build = ["cc", "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(build, check=True, timeout=60)
    return str(folder)


def test_the_binding_reads_a_gpu_and_misses_what_the_driver_lacks(library: str) -> None:
    (gpu,) = read(LD_LIBRARY_PATH=library)
    assert (gpu["uuid"], gpu["name"], gpu["index"], gpu["memory_mib"]) == ("GPU-stub", "Stub GPU", 0, 1000)
    assert gpu["signals"] == {"vram_util": 0.25, "gpu_util": 0.42, "memory_bw_util": 0.17}
    health = gpu["health"]
    assert (health["temperature_c"], health["power_w"], health["power_limit_w"]) == (71, 123.456, 400.0)
    assert (health["clock_event_reasons"], health["pcie_replays"]) == (0x40, 9)
    assert (health["ecc_correctable"], health["remapped_rows"]) == (None, None)
    assert not health["gpu_lost"]


def test_a_lost_gpu_is_lost_by_the_binding_too(library: str) -> None:
    (gpu,) = read(LD_LIBRARY_PATH=library, STUB_LOST="1")
    assert gpu["health"]["gpu_lost"]
    assert gpu["signals"] == {}


def test_a_host_without_the_library_is_absent_and_not_broken(tmp_path: Path) -> None:
    """An unreadable library stands for none, so that the test means the same on a GPU host."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    assert read(LD_LIBRARY_PATH=str(tmp_path)) == {"error": "no NVML library on this host", "absent": True}
