"""NVML calls that tell what is missing from what is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

# One name in the binding for several functions of the library, by version: that one is missing says
# nothing of the other.
_SEVERAL: Final = frozenset({"nvmlDeviceGetMemoryInfo"})


class NvmlError(Exception):
    """NVML could not be read at all; `absent` = this host has no NVML library."""

    def __init__(self, message: str, absent: bool = False) -> None:
        super().__init__(message)
        self.absent = absent


class GpuLostError(Exception):
    """The GPU has fallen off the bus or needs a reset."""


class Calls:
    """Calls functions of `api`, the pynvml module or one like it, by name.

    `note` is told of each call before it is made, as "INDEX FUNCTION", and of its end as "".
    """

    def __init__(self, api: Any, note: Callable[[str], None] = lambda text: None) -> None:
        self.api = api
        self._note = note
        self._lost = {api.NVML_ERROR_GPU_IS_LOST, api.NVML_ERROR_RESET_REQUIRED}
        # After these nothing that this process holds of NVML is worth anything.
        self._broken = {
            api.NVML_ERROR_UNINITIALIZED,
            api.NVML_ERROR_DRIVER_NOT_LOADED,
            api.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        }
        self._unknown: set[str] = set()

    def start(self) -> None:
        """Load and start the library. Raises NvmlError."""
        try:
            self._call("-", "nvmlInit", ())
        except self.api.NVMLError as error:
            absent = error.value == self.api.NVML_ERROR_LIBRARY_NOT_FOUND
            hint = "no NVML library on this host" if absent else f"NVML does not start: {error}"
            raise NvmlError(hint, absent) from error

    def need(self, function: str) -> Any:
        """The answer of a function that is no GPU's. Raises NvmlError where there is none."""
        try:
            return self._call("-", function, ())
        except self.api.NVMLError as error:
            raise NvmlError(f"{function}: {error}") from error

    def ask(self, index: int | None, function: str, *args: Any) -> Any:
        """Call for the GPU at `index`; None where it, the driver or the binding does not support it.

        Raises GpuLostError where the GPU is gone, NvmlError where NVML itself is.
        """
        if function in self._unknown:
            return None
        try:
            return self._call("-" if index is None else str(index), function, args)
        except AttributeError:  # an older binding
            self._unknown.add(function)
        except self.api.NVMLError as error:
            self._judge(function, error)
        return None

    def number(self, index: int, function: str, *args: Any) -> int | None:
        """The same for what answers with a number that cannot be negative."""
        value = self.ask(index, function, *args)
        return int(value) if isinstance(value, int) and value >= 0 else None

    def _judge(self, function: str, error: Any) -> None:
        """Raise where the error says more than that there is no figure."""
        if error.value in self._lost:
            raise GpuLostError(function) from error
        if error.value in self._broken:
            raise NvmlError(f"{function}: {error}") from error
        if error.value == self.api.NVML_ERROR_FUNCTION_NOT_FOUND and function not in _SEVERAL:
            self._unknown.add(function)

    def _call(self, whose: str, function: str, args: tuple[Any, ...]) -> Any:
        call = getattr(self.api, function)
        self._note(f"{whose} {function}")
        answer = call(*args)
        self._note("")
        return answer
