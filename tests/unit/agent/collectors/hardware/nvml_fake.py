"""A stand-in for the pynvml module: healthy until told otherwise."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

MIB = 2**20


class FakeNvml:
    """GPUs by index; `errors` maps a function's name to the NVML error code it raises, `hooks` to
    what it calls first. Functions in `absent` do not exist in this binding."""

    NVMLError = pynvml.NVMLError

    def __init__(self, gpus: int = 1) -> None:
        self.gpus = gpus
        self.errors: dict[str, int] = {}
        self.hooks: dict[str, Callable[[], None]] = {}
        self.absent: set[str] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_") or name == "nvmlMemory_v2":
            return getattr(pynvml, name)
        answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: self.gpus,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda handle: b"Fake GPU",
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=40 + handle, memory=25),
            "nvmlDeviceGetMemoryInfo": _memory,
            "nvmlDeviceGetTemperatureV": lambda handle, sensor: 66,
            "nvmlDeviceGetTemperature": lambda handle, sensor: 66,
            "nvmlDeviceGetMarginTemperature": lambda handle: 21,
            "nvmlDeviceGetTemperatureThreshold": lambda handle, kind: 90,
            "nvmlDeviceGetPowerUsage": lambda handle: 350_500,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x4,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x8,
            "nvmlDeviceGetPcieReplayCounter": lambda handle: 3,
            "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: 10 + kind,
            "nvmlDeviceGetRemappedRows": lambda handle: (1, 2, 0, 0),
        }
        if name not in answers or name in self.absent:
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            self.calls.append(name)
            if name in self.hooks:
                self.hooks[name]()
            if name in self.errors:
                raise pynvml.NVMLError(self.errors[name])
            return answers[name](*args)

        return call


def _memory(handle: int, version: int | None = None) -> SimpleNamespace:
    reserved = 1000 * MIB if version else 0
    used = 31_000 * MIB if version else 32_000 * MIB
    return SimpleNamespace(total=80_000 * MIB, reserved=reserved, used=used)
