"""A stand-in for the pynvml module, healthy until told otherwise, and a reader over it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

from headrace_agent.collectors.hardware.nvml.calls import NvmlError
from headrace_agent.collectors.hardware.nvml.reader import Reader
from headrace_agent.collectors.hardware.nvml.rows import Rows
from headrace_agent.collectors.hardware.source import Read
from headrace_agent.collectors.readings import Status

MIB = 2**20
MIG = 1000
"""Handles are addresses: GPU n has n + 1, MIG device m of GPU 0 has MIG + m."""


class FakeNvml:
    """GPUs by index; `errors` maps a function's name to the NVML error code it raises, `hooks` to
    what it calls first. Functions in `absent` do not exist in this binding. `slices` are the GPU
    instance ids of GPU 0's MIG devices; `gpm` gives the GPUs GPM, with `metrics` by id as
    (return code, value) and `samples` counting what is allocated; `events` are what the event set
    holds, as (GPU, XID, GPU instance); it times out when it holds none."""

    NVMLError = pynvml.NVMLError

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.errors: dict[str, int] = {}
        self.hooks: dict[str, Callable[[], None]] = {}
        self.absent: set[str] = set()
        self.calls: list[str] = []
        self.slices: list[int] = []
        self.gpm = False
        self.metrics: dict[int, tuple[int, float]] = {2: (0, 80.0), 5: (0, 40.0), 10: (0, 60.0)}
        self.samples = 0
        self.asked_samples: list[tuple[int, int | None]] = []
        self.events: list[tuple[int, int, int]] = []
        self.registered: list[int] = []
        self._given = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("NVML_", "c_nvml", "nvmlEventType")) or name == "nvmlMemory_v2":
            return getattr(pynvml, name)
        answer = getattr(self, f"_{name}", None) if name.startswith("nvml") else None
        answer = answer or _ANSWERS.get(name)
        if answer is None or name in self.absent:
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            self.calls.append(name)
            if name in self.hooks:
                self.hooks[name]()
            if name in self.errors:
                raise pynvml.NVMLError(self.errors[name])
            return answer(*args)

        return call

    def _nvmlDeviceGetCount(self) -> int:
        return self.gpus

    def _nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        return [1, 1] if self.slices and number(handle) == 0 else [0, 0]

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return 7

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, place: int) -> Any:
        if place >= len(self.slices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return at(MIG + place)

    def _nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:
        return self.slices[_address(handle) - MIG]

    def _nvmlGpmQueryDeviceSupport(self, handle: Any) -> Any:
        return SimpleNamespace(isSupportedDevice=int(self.gpm))

    def _nvmlGpmSampleAlloc(self) -> Any:
        self.samples += 1
        self._given += 1
        return ctypes.cast(self._given, pynvml.c_nvmlGpmSample_t)

    def _nvmlGpmSampleFree(self, sample: Any) -> None:
        self.samples -= 1

    def _nvmlGpmSampleGet(self, handle: Any, sample: Any) -> Any:
        self.asked_samples.append((number(handle), None))
        return sample

    def _nvmlGpmMigSampleGet(self, handle: Any, instance: int, sample: Any) -> Any:
        self.asked_samples.append((number(handle), instance))
        return sample

    def _nvmlGpmMetricsGet(self, request: Any) -> Any:
        assert request.version == 1
        assert _address(request.sample1) != _address(request.sample2)
        for place in range(request.numMetrics):
            metric = request.metrics[place]
            metric.nvmlReturn, metric.value = self.metrics[metric.metricId]
        return request

    def _nvmlEventSetCreate(self) -> object:
        self.registered = []
        return object()

    def _nvmlDeviceRegisterEvents(self, handle: Any, types: int, events: object) -> None:
        assert types == pynvml.nvmlEventTypeXidCriticalError
        self.registered.append(number(handle))

    def _nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        gpu, xid, instance = self.events.pop(0)
        return SimpleNamespace(
            device=at(gpu + 1), eventType=8, eventData=xid, gpuInstanceId=instance, computeInstanceId=0
        )


class FakeReader:
    """Implements the collector's Nvml in this process, over a FakeNvml."""

    rest_s = 0.0

    def __init__(self, api: FakeNvml) -> None:
        self._reader = Reader(api)
        self._rows = Rows()

    async def read(self) -> Read:
        try:
            answer = self._reader.read()
        except NvmlError as error:
            return Read(Status.FAILED, detail=str(error))
        return Read(Status.OK, self._rows.take(answer["gpus"], answer["count"]))

    async def close(self) -> None:
        return


def at(address: int) -> Any:
    """A handle."""
    return ctypes.cast(address, pynvml.c_nvmlDevice_t)


def number(handle: Any) -> int:
    """The index of the GPU that a handle is, or belongs to."""
    address = _address(handle)
    return address - 1 if address < MIG else 0


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _uuid(handle: Any) -> str:
    address = _address(handle)
    return f"MIG-{address - MIG}" if address >= MIG else f"GPU-{address - 1}"


def _memory(handle: Any, version: int | None = None) -> SimpleNamespace:
    share = 4 if _address(handle) >= MIG else 1
    reserved = 1000 * MIB // share if version else 0
    used = (31_000 if version else 32_000) * MIB // share
    return SimpleNamespace(total=80_000 * MIB // share, reserved=reserved, used=used)


_ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: "999.1",
    "nvmlSystemGetNVMLVersion": lambda: "13.999.1",
    "nvmlDeviceGetHandleByIndex": lambda index: at(index + 1),
    "nvmlDeviceGetUUID": _uuid,
    "nvmlDeviceGetName": lambda handle: b"Fake GPU",
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=40 + number(handle), memory=25),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetTemperatureV": lambda handle, sensor: 66,
    "nvmlDeviceGetTemperature": lambda handle, sensor: 67,
    "nvmlDeviceGetMarginTemperature": lambda handle: 21,
    "nvmlDeviceGetTemperatureThreshold": lambda handle, kind: 90,
    "nvmlDeviceGetPowerUsage": lambda handle: 350_500,
    "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x4,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x8,
    "nvmlDeviceGetPcieReplayCounter": lambda handle: 3,
    "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: 10 + kind,
    "nvmlDeviceGetRemappedRows": lambda handle: (1, 2, 1, 0),
    "nvmlDeviceGetComputeRunningProcesses_v2": lambda handle: [SimpleNamespace(pid=7)],
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda handle: [
        SimpleNamespace(pid=_address(handle)),
        SimpleNamespace(pid=5),
    ],
    "nvmlEventSetFree": lambda events: None,
}
