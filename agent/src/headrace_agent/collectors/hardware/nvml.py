"""GPU figures by NVML (nvidia-ml-py), for hosts without an exporter and while it is away.

Every call blocks and can hang on a sick GPU: use `NvmlReader` from a worker's thread only.
"""

from __future__ import annotations

from typing import Any

from headrace_agent.collectors.hardware.figures import GpuFigures, within
from headrace_agent.collectors.readings import Health

MAX_GPUS = 64


class NvmlError(Exception):
    """NVML could not be read at all; `absent` = this host has no NVML library."""

    def __init__(self, message: str, absent: bool = False) -> None:
        super().__init__(message)
        self.absent = absent


class _LostError(Exception):
    """The GPU has fallen off the bus or needs a reset."""


class NvmlReader:
    """Reads every GPU of the host through `api`, the pynvml module or one like it."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._ready = False
        self._known: dict[int, GpuFigures] = {}

    def read(self) -> tuple[GpuFigures, ...]:
        """One entry per GPU; what a GPU does not support is missing. Raises NvmlError."""
        self._start()
        count = self._need("nvmlDeviceGetCount")
        gpus = (self._gpu(index) for index in range(min(int(count), MAX_GPUS)))
        return tuple(gpu for gpu in gpus if gpu is not None)

    def close(self) -> None:
        """Let the library go; the next read starts it again."""
        if not self._ready:
            return
        self._ready = False
        try:
            self._api.nvmlShutdown()
        except self._api.NVMLError:
            return  # it has already lost its state, which is what closing is for

    def _start(self) -> None:
        if self._ready:
            return
        api = self._api
        try:
            api.nvmlInit()
        except api.NVMLError as error:
            absent = error.value == api.NVML_ERROR_LIBRARY_NOT_FOUND
            hint = "no NVML library on this host" if absent else f"NVML does not start: {error}"
            raise NvmlError(hint, absent) from error
        self._ready = True

    def _need(self, function: str) -> Any:
        try:
            return getattr(self._api, function)()
        except self._api.NVMLError as error:
            self.close()
            raise NvmlError(f"{function}: {error}") from error

    def _gpu(self, index: int) -> GpuFigures | None:
        try:
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            if handle is None:
                return None
            figures = self._figures(index, handle)
        except _LostError:
            known = self._known.get(index, GpuFigures(uuid="", index=index))
            return GpuFigures(
                known.uuid, index, name=known.name, memory_mib=known.memory_mib, health=Health(gpu_lost=True)
            )
        self._known[index] = figures
        return figures

    def _figures(self, index: int, handle: Any) -> GpuFigures:
        used, total, reserved = self._memory(handle)
        signals: dict[str, float | None] = {
            "vram_util": used / (total - reserved) if used is not None and total > reserved else None
        }
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        if rates is not None:
            signals["gpu_util"] = _percent(rates.gpu)
            signals["memory_bw_util"] = _percent(rates.memory)
        return GpuFigures(
            uuid=_text(self._ask("nvmlDeviceGetUUID", handle)),
            index=index,
            name=_text(self._ask("nvmlDeviceGetName", handle)),
            memory_mib=total // 2**20 or None,
            signals={name: value for name, value in signals.items() if within(value, 0, 1) is not None},  # type: ignore[misc]
            health=self._health(handle),
            weaker_bandwidth="memory_bw_util" in signals,
        )

    def _memory(self, handle: Any) -> tuple[int | None, int, int]:
        """Used, total and reserved bytes; (None, 0, 0) where the GPU does not say."""
        api = self._api
        info = self._ask("nvmlDeviceGetMemoryInfo", handle, getattr(api, "nvmlMemory_v2", None))
        if info is not None:
            return int(info.used), int(info.total), int(getattr(info, "reserved", 0))
        info = self._ask("nvmlDeviceGetMemoryInfo", handle)
        # The first version counts what is reserved as used.
        return (None, 0, 0) if info is None else (int(info.used), int(info.total), 0)

    def _health(self, handle: Any) -> Health:
        api = self._api
        temperature = self._number("nvmlDeviceGetTemperatureV", handle, api.NVML_TEMPERATURE_GPU)
        if temperature is None:  # older drivers
            temperature = self._number("nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU)
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # the older name of the same
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        remapped = self._ask("nvmlDeviceGetRemappedRows", handle)
        return Health(
            temperature_c=within(temperature, 1, 200),
            thermal_margin_c=self._margin(handle, temperature),
            power_w=_watts(self._number("nvmlDeviceGetPowerUsage", handle)),
            power_limit_w=_watts(self._number("nvmlDeviceGetEnforcedPowerLimit", handle)),
            clock_event_reasons=reasons,
            pcie_replays=self._number("nvmlDeviceGetPcieReplayCounter", handle),
            ecc_correctable=self._ecc(handle, api.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            ecc_uncorrectable=self._ecc(handle, api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            remapped_rows=None if remapped is None else int(remapped[0]) + int(remapped[1]),
        )

    def _margin(self, handle: Any, temperature: int | None) -> float | None:
        margin = self._ask("nvmlDeviceGetMarginTemperature", handle)
        if isinstance(margin, int):
            return within(margin, -100, 200)
        slowdown = self._number(
            "nvmlDeviceGetTemperatureThreshold", handle, self._api.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        )
        return None if temperature is None or not slowdown else within(slowdown - temperature, -100, 200)

    def _ecc(self, handle: Any, kind: int) -> int | None:
        return self._number("nvmlDeviceGetTotalEccErrors", handle, kind, self._api.NVML_VOLATILE_ECC)

    def _number(self, function: str, *args: Any) -> int | None:
        value = self._ask(function, *args)
        return int(value) if isinstance(value, int) and value >= 0 else None

    def _ask(self, function: str, *args: Any) -> Any:
        """Call NVML; None where the GPU, the driver or the binding does not support it.

        Raises _LostError where the GPU is gone, NvmlError where NVML itself is.
        """
        api = self._api
        call = getattr(api, function, None)
        if call is None:
            return None
        try:
            return call(*args)
        except api.NVMLError as error:
            if error.value in (api.NVML_ERROR_GPU_IS_LOST, api.NVML_ERROR_RESET_REQUIRED):
                raise _LostError from error
            if error.value == api.NVML_ERROR_UNINITIALIZED:
                self._ready = False
                raise NvmlError(f"{function}: {error}") from error
            return None


def _percent(value: Any) -> float | None:
    share = within(float(value), 0, 100)
    return None if share is None else share / 100


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else within(milliwatts / 1000, 0, 1e5)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
