"""GPU performance monitoring (GPM, Hopper and later): how busy SMs, tensor cores and DRAM were.

A figure is a mean between two samples. Each GPU and each MIG instance keeps two sample objects for
as long as it is there, so nothing is allocated per reading and nothing leaks.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Any, Final

from headrace_agent.collectors.hardware.nvml.calls import Calls

Owner = tuple[int, str]
"""A GPU's index and the MIG instance, "" = the whole GPU."""

_METRICS: Final = {
    "sm": "NVML_GPM_METRIC_SM_UTIL",
    "tensor": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram": "NVML_GPM_METRIC_DRAM_BW_UTIL",
}


class _Pair:
    """Two sample objects that take turns; `last` holds a sample once it is `primed`."""

    __slots__ = ("last", "next", "primed")

    def __init__(self, last: Any, next_: Any) -> None:
        self.last = last
        self.next = next_
        self.primed = False


class Gpm:
    """The samples of all GPUs."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._supported: dict[int, bool] = {}
        self._pairs: dict[Owner, _Pair] = {}

    def supports(self, index: int, device: Any) -> bool:
        """Whether the GPU has GPM; asked once."""
        if index not in self._supported:
            answer = self._calls.ask(index, "nvmlGpmQueryDeviceSupport", device)
            self._supported[index] = answer is not None and bool(answer.isSupportedDevice)
        return self._supported[index]

    def read(self, owner: Owner, device: Any) -> dict[str, float]:
        """Per cent since the reading before, under sm, tensor and dram; what has no figure is missing.

        `device` is the whole GPU's handle, for an instance too.
        """
        index, instance = owner
        if not self.supports(index, device):
            return {}
        pair = self._pairs.get(owner) or self._open(owner)
        if pair is None or not self._sample(index, instance, device, pair.next):
            return {}
        figures = self._compare(index, pair) if pair.primed else {}
        pair.last, pair.next, pair.primed = pair.next, pair.last, True
        return figures

    def keep(self, owners: Collection[Owner]) -> None:
        """Free the samples of every other GPU and instance."""
        for owner in [each for each in self._pairs if each not in owners]:
            pair = self._pairs.pop(owner)
            for sample in (pair.last, pair.next):
                self._calls.ask(owner[0], "nvmlGpmSampleFree", sample)

    def _open(self, owner: Owner) -> _Pair | None:
        first = self._calls.ask(owner[0], "nvmlGpmSampleAlloc")
        if first is None:
            return None
        second = self._calls.ask(owner[0], "nvmlGpmSampleAlloc")
        if second is None:
            self._calls.ask(owner[0], "nvmlGpmSampleFree", first)
            return None
        self._pairs[owner] = _Pair(first, second)
        return self._pairs[owner]

    def _sample(self, index: int, instance: str, device: Any, sample: Any) -> bool:
        if instance:
            taken = self._calls.ask(index, "nvmlGpmMigSampleGet", device, int(instance), sample)
        else:
            taken = self._calls.ask(index, "nvmlGpmSampleGet", device, sample)
        return taken is not None

    def _compare(self, index: int, pair: _Pair) -> dict[str, float]:
        api = self._calls.api
        request = api.c_nvmlGpmMetricsGet_t()
        request.version = api.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = pair.last, pair.next
        for place, metric in enumerate(_METRICS.values()):
            request.metrics[place].metricId = getattr(api, metric)
        if self._calls.ask(index, "nvmlGpmMetricsGet", request) is None:
            return {}
        answers = zip(_METRICS, request.metrics, strict=False)
        return {
            name: float(answer.value)
            for name, answer in answers
            if answer.nvmlReturn == api.NVML_SUCCESS and isfinite(answer.value)
        }
