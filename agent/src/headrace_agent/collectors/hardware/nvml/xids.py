"""Waits for XIDs by NVML's event set. What happened before the set was registered is not told."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from headrace_agent.collectors.hardware.nvml.calls import Calls, GpuLostError, NvmlError
from headrace_agent.collectors.hardware.nvml.reader import MAX_GPUS, text
from headrace_agent.collectors.hardware.nvml.wire import Message

WAIT_MS: Final = 1000
# After an error, and where no GPU has events.
REARM_S: Final = 5.0
# A faulty program can cause XIDs without end.
BETWEEN_EVENTS_S: Final = 0.01
NO_INSTANCE: Final = 0xFFFFFFFF


class XidWaiter:
    """One event set over all GPUs; `tell` gets a message for each XID. Its methods block.

    `turns` is how often it has come this far, `problem` why a GPU is not listened to.
    """

    def __init__(
        self, api: Any, tell: Callable[[Message], None], note: Callable[[str], None] = lambda text: None
    ) -> None:
        self._api = api
        self._calls = Calls(api, note)
        self._tell = tell
        self._set: Any = None
        self._uuids: dict[int | None, str] = {}
        self._proved = False
        self.turns = 0
        self.problem = ""

    @property
    def armed(self) -> int:
        """How many GPUs it listens to."""
        return len(self._uuids)

    def turn(self) -> float:
        """Arm where nothing is armed, else wait once; how long to rest before the next turn, s."""
        self.turns += 1
        if self._set is None:
            self._arm()
            return 0.0 if self._set is not None else REARM_S
        try:
            event = self._api.nvmlEventSetWait_v2(self._set, WAIT_MS)
        except self._api.NVMLError as error:
            if error.value == self._api.NVML_ERROR_TIMEOUT:
                self._proved = True
                return 0.0
            # A lost GPU ends every wait at once: the others go on in a new set, without it.
            rest_s = 0.0 if self._proved else REARM_S
            self._disarm(f"nvmlEventSetWait_v2: {error}")
            return rest_s
        self._proved = True
        if event.eventType & self._api.nvmlEventTypeXidCriticalError:
            self._tell(self._message(event))
        return BETWEEN_EVENTS_S

    def _message(self, event: Any) -> Message:
        instance = int(event.gpuInstanceId)
        return {
            "xid": int(event.eventData),
            "uuid": self._uuids.get(_address(event.device)) or self._ask_name(event.device),
            "instance": "" if instance == NO_INSTANCE else str(instance),
        }

    def _ask_name(self, device: Any) -> str:
        try:
            return text(self._calls.ask(None, "nvmlDeviceGetUUID", device))
        except (GpuLostError, NvmlError):
            return ""

    def _arm(self) -> None:
        try:
            events = self._calls.need("nvmlEventSetCreate")
            count = int(self._calls.need("nvmlDeviceGetCount"))
        except NvmlError as error:
            self.problem = str(error)
            return
        self._set = events
        problems = [self._register(index, events) for index in range(min(count, MAX_GPUS))]
        problem = next((each for each in problems if each), "")
        if self._uuids:
            self.problem = problem
        else:
            self._disarm(problem or "no GPU tells of XIDs")

    def _register(self, index: int, events: Any) -> str:
        """Listen to one GPU; why not, where that fails.

        Names are asked for now: a GPU that has fallen off the bus no longer tells its own.
        """
        xids = self._api.nvmlEventTypeXidCriticalError
        try:
            device = self._calls.ask(index, "nvmlDeviceGetHandleByIndex", index)
            uuid = None if device is None else self._calls.ask(index, "nvmlDeviceGetUUID", device)
            if uuid is None:
                return ""
            self._api.nvmlDeviceRegisterEvents(device, xids, events)
        except (GpuLostError, NvmlError, self._api.NVMLError) as error:
            return f"GPU {index} tells of no XIDs: {error}"
        self._uuids[_address(device)] = text(uuid)
        return ""

    def _disarm(self, problem: str) -> None:
        events, self._set, self._proved = self._set, None, False
        self._uuids.clear()
        self.problem = problem
        try:
            self._api.nvmlEventSetFree(events)
        except self._api.NVMLError:
            return  # it went with what the error before this one was about


def _address(device: Any) -> int | None:
    """What tells one device handle from another."""
    return ctypes.cast(device, ctypes.c_void_p).value
