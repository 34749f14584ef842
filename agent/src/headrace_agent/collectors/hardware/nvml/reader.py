"""Reads every GPU and MIG instance of the host, as rows of plain figures in NVML's own units.

A row holds what its GPU supports: `index`, `uuid`, `name`, `instance` and `aliases` (MIG UUIDs);
bytes in `total`, `reserved`, `used`; per cent in `gpu`, `accessed`, `sm`, `tensor`, `dram`; °C in
`temperature`, `margin`; mW in `power`, `power_limit`; counts and bits under the names of
readings.Health. `lost` alone stands for a GPU that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from headrace_agent.collectors.hardware.nvml.calls import Calls, GpuLostError
from headrace_agent.collectors.hardware.nvml.gpm import Gpm, Owner

Row = dict[str, Any]

MAX_GPUS: Final = 64
MAX_INSTANCES: Final = 16


class Reader:
    """All GPUs through `api`, the pynvml module or one like it. Every call blocks and can hang."""

    def __init__(self, api: Any, note: Callable[[str], None] = lambda text: None) -> None:
        self._calls = Calls(api, note)
        self._gpm = Gpm(self._calls)
        self._names: dict[int, tuple[str, str]] = {}

    def start(self) -> None:
        """Load and start the library. Raises NvmlError."""
        self._calls.start()

    def read(self, without: Collection[int] = ()) -> Row:
        """`gpus`: the rows of every GPU but those `without`; `count`: how many NVML sees.

        Raises NvmlError.
        """
        count = int(self._calls.need("nvmlDeviceGetCount"))
        owners: set[Owner] = set()
        rows: list[Row] = []
        for index in range(min(count, MAX_GPUS)):
            if index not in without:
                rows += self._gpu(index, owners)
        self._gpm.keep(owners)
        return {"gpus": rows, "count": count}

    def describe(self) -> Row:
        """What does not change and who is there: `driver`, `library`, and rows with `pids` and `gpm`.

        Raises NvmlError.
        """
        count = int(self._calls.need("nvmlDeviceGetCount"))
        rows = [row for index in range(min(count, MAX_GPUS)) for row in self._description(index)]
        return {
            "driver": text(self._calls.ask(None, "nvmlSystemGetDriverVersion")),
            "library": text(self._calls.ask(None, "nvmlSystemGetNVMLVersion")),
            "gpus": rows,
        }

    def _gpu(self, index: int, owners: set[Owner]) -> list[Row]:
        """The rows of one GPU; none where it may not be opened. Adds what has samples to `owners`."""
        try:
            device = self._calls.ask(index, "nvmlDeviceGetHandleByIndex", index)
            if device is None:
                return []
            rows = [self._identity(index, device) | self._usage(index, device) | self._health(index, device)]
            for instance, slice_device in self._slices(index, device):
                rows.append(self._slice(index, instance, slice_device))
            rows = _merged(rows)
            # Samples come last: taking them is what is known to upset other calls on some drivers.
            for row in rows:
                owner = index, row.get("instance", "")
                row |= self._gpm.read(owner, device)
                owners.add(owner)
        except GpuLostError:
            return [{"index": index, "lost": True}]
        return rows

    def _identity(self, index: int, device: Any) -> Row:
        if index not in self._names:
            uuid = text(self._calls.ask(index, "nvmlDeviceGetUUID", device))
            self._names[index] = uuid, text(self._calls.ask(index, "nvmlDeviceGetName", device))
        uuid, name = self._names[index]
        return {"index": index, "uuid": uuid, "name": name}

    def _usage(self, index: int, device: Any) -> Row:
        rates = self._calls.ask(index, "nvmlDeviceGetUtilizationRates", device)
        row = {} if rates is None else {"gpu": int(rates.gpu), "accessed": int(rates.memory)}
        return row | self._memory(index, device)

    def _memory(self, index: int, device: Any) -> Row:
        version = getattr(self._calls.api, "nvmlMemory_v2", None)
        info = self._calls.ask(index, "nvmlDeviceGetMemoryInfo", device, version)
        if info is None:  # the first version counts what is reserved as used
            info = self._calls.ask(index, "nvmlDeviceGetMemoryInfo", device)
        if info is None:
            return {}
        reserved = int(getattr(info, "reserved", 0))
        return {"total": int(info.total), "reserved": reserved, "used": int(info.used)}

    def _health(self, index: int, device: Any) -> Row:
        calls, api = self._calls, self._calls.api
        sensor = api.NVML_TEMPERATURE_GPU
        temperature = calls.number(index, "nvmlDeviceGetTemperatureV", device, sensor)
        if temperature is None:  # older drivers
            temperature = calls.number(index, "nvmlDeviceGetTemperature", device, sensor)
        reasons = calls.number(index, "nvmlDeviceGetCurrentClocksEventReasons", device)
        if reasons is None:  # the older name of the same
            reasons = calls.number(index, "nvmlDeviceGetCurrentClocksThrottleReasons", device)
        row = {
            "temperature": temperature,
            "margin": self._margin(index, device, temperature),
            "power": calls.number(index, "nvmlDeviceGetPowerUsage", device),
            "power_limit": calls.number(index, "nvmlDeviceGetEnforcedPowerLimit", device),
            "clock_event_reasons": reasons,
            "pcie_replays": calls.number(index, "nvmlDeviceGetPcieReplayCounter", device),
            "ecc_correctable": self._ecc(index, device, api.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "ecc_uncorrectable": self._ecc(index, device, api.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        } | self._remapped(index, device)
        return {name: value for name, value in row.items() if value is not None}

    def _remapped(self, index: int, device: Any) -> Row:
        rows = self._calls.ask(index, "nvmlDeviceGetRemappedRows", device)
        if rows is None:
            return {}
        corrected, uncorrected, pending, failed = (int(each) for each in rows)
        return {
            "remapped_rows": corrected + uncorrected,
            "remap_pending": bool(pending),
            "remap_failed": bool(failed),
        }

    def _margin(self, index: int, device: Any, temperature: int | None) -> int | None:
        margin = self._calls.ask(index, "nvmlDeviceGetMarginTemperature", device)
        if isinstance(margin, int):
            return margin
        slowdown = self._calls.number(
            index,
            "nvmlDeviceGetTemperatureThreshold",
            device,
            self._calls.api.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        )
        return None if temperature is None or not slowdown else slowdown - temperature

    def _ecc(self, index: int, device: Any, kind: int) -> int | None:
        return self._calls.number(
            index, "nvmlDeviceGetTotalEccErrors", device, kind, self._calls.api.NVML_VOLATILE_ECC
        )

    def _slices(self, index: int, device: Any) -> Iterator[tuple[str, Any]]:
        """The MIG devices of a GPU, as (GPU instance id, handle)."""
        mode = self._calls.ask(index, "nvmlDeviceGetMigMode", device)
        if mode is None or mode[0] != self._calls.api.NVML_DEVICE_MIG_ENABLE:
            return
        most = self._calls.number(index, "nvmlDeviceGetMaxMigDeviceCount", device) or 0
        for place in range(min(most, MAX_INSTANCES)):
            handle = self._calls.ask(index, "nvmlDeviceGetMigDeviceHandleByIndex", device, place)
            if handle is None:
                continue
            instance = self._calls.number(index, "nvmlDeviceGetGpuInstanceId", handle)
            if instance is not None:
                yield str(instance), handle

    def _slice(self, index: int, instance: str, device: Any) -> Row:
        return {
            "index": index,
            "uuid": self._names[index][0],
            "name": text(self._calls.ask(index, "nvmlDeviceGetName", device)),
            "instance": instance,
            "aliases": [text(self._calls.ask(index, "nvmlDeviceGetUUID", device))],
        } | self._memory(index, device)

    def _description(self, index: int) -> list[Row]:
        try:
            device = self._calls.ask(index, "nvmlDeviceGetHandleByIndex", index)
            if device is None:
                return []
            whole = self._identity(index, device) | self._memory(index, device)
            whole |= {"gpm": self._gpm.supports(index, device), "pids": self._pids(index, device)}
            rows = [
                self._slice(index, instance, handle) | {"pids": self._pids(index, handle)}
                for instance, handle in self._slices(index, device)
            ]
        except GpuLostError:
            return [{"index": index, "lost": True}]
        return _merged([whole, *rows])

    def _pids(self, index: int, device: Any) -> list[int]:
        """Processes that compute on a GPU or an instance, as this process's pid namespace counts them."""
        found: set[int] = set()
        for kind in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
            # The binding's unversioned names raise an error of another sort on older drivers.
            processes = self._calls.ask(index, f"{kind}_v3", device)
            if processes is None:
                processes = self._calls.ask(index, f"{kind}_v2", device)
            found.update(int(each.pid) for each in processes or ())
        return sorted(found)


def _merged(rows: list[Row]) -> list[Row]:
    """One row per GPU instance: the compute instances within it share its memory."""
    merged: dict[str, Row] = {}
    for row in rows:
        known = merged.setdefault(row.get("instance", ""), row)
        if known is not row:
            known["aliases"] += row["aliases"]
            known["pids"] = sorted({*known.get("pids", ()), *row.get("pids", ())})
    return list(merged.values())


def text(value: Any) -> str:
    """What NVML names something; "" where it has no name."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
