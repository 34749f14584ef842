"""The event set: each XID with its GPU's name, through losses and errors."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from headrace_agent.collectors.hardware.nvml.xids import NO_INSTANCE, REARM_S, XidWaiter
from tests.unit.agent.collectors.hardware.nvml_fake import FakeNvml


class Bench:
    def __init__(self, gpus: int = 1) -> None:
        self.api = FakeNvml(gpus)
        self.told: list[dict[str, Any]] = []
        self.waiter = XidWaiter(self.api, self.told.append)

    def turns(self, count: int) -> list[float]:
        return [self.waiter.turn() for _ in range(count)]


def test_all_gpus_are_listened_to_and_an_xid_is_told_with_its_gpu() -> None:
    bench = Bench(gpus=3)
    bench.turns(1)
    assert bench.api.registered == [0, 1, 2]
    assert (bench.waiter.armed, bench.waiter.problem) == (3, "")
    bench.api.events = [(1, 79, NO_INSTANCE), (2, 31, 5)]
    bench.turns(2)
    assert bench.told == [
        {"xid": 79, "uuid": "GPU-1", "instance": ""},
        {"xid": 31, "uuid": "GPU-2", "instance": "5"},
    ]


def test_the_gpus_name_is_known_before_it_falls_off_the_bus() -> None:
    bench = Bench()
    bench.turns(1)
    bench.api.errors["nvmlDeviceGetUUID"] = pynvml.NVML_ERROR_GPU_IS_LOST
    bench.api.events = [(0, 79, NO_INSTANCE)]
    bench.turns(1)
    assert bench.told == [{"xid": 79, "uuid": "GPU-0", "instance": ""}]


def test_an_xid_of_a_gpu_that_came_later_is_named_by_asking() -> None:
    bench = Bench(gpus=1)
    bench.turns(1)
    bench.api.events = [(4, 48, NO_INSTANCE)]
    bench.turns(1)
    assert bench.told[0]["uuid"] == "GPU-4"


def test_a_wait_that_times_out_is_followed_by_the_next_at_once() -> None:
    bench = Bench()
    assert bench.turns(4) == [0.0] * 4
    assert bench.api.calls.count("nvmlEventSetCreate") == 1
    assert bench.waiter.turns == 4, "what tells a wait that hangs from one that waits"


def test_other_events_are_no_xids() -> None:
    bench = Bench()
    bench.turns(1)
    bench.api.__dict__["nvmlEventTypeXidCriticalError"] = 0x10
    bench.api.events = [(0, 79, NO_INSTANCE)]
    bench.turns(1)
    assert bench.told == []


def test_after_an_error_a_new_set_is_made_at_once_and_then_slowly() -> None:
    bench = Bench(gpus=2)
    bench.turns(2)
    bench.api.errors["nvmlEventSetWait_v2"] = pynvml.NVML_ERROR_GPU_IS_LOST
    assert bench.turns(3) == [0.0, 0.0, REARM_S], "it had worked; then a set that never did"
    assert bench.api.calls.count("nvmlEventSetFree") == 2
    bench.api.errors.clear()
    bench.turns(1)
    assert bench.waiter.armed == 2


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_gpus_without_events_are_said_and_tried_again_later(code: int) -> None:
    bench = Bench()
    bench.api.errors["nvmlDeviceRegisterEvents"] = code
    assert bench.turns(2) == [REARM_S, REARM_S]
    assert bench.waiter.problem.startswith("GPU 0 tells of no XIDs")
    assert bench.waiter.armed == 0


def test_a_gpu_that_is_lost_does_not_silence_the_others() -> None:
    bench = Bench(gpus=2)
    lost = iter([pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST), None])

    def first_is_lost() -> None:
        error = next(lost)
        if error is not None:
            raise error

    bench.api.hooks["nvmlDeviceRegisterEvents"] = first_is_lost
    bench.turns(1)
    assert bench.api.registered == [1]
    assert bench.waiter.armed == 1


def test_a_driver_without_event_sets_is_said() -> None:
    bench = Bench()
    bench.api.errors["nvmlEventSetCreate"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.turns(1) == [REARM_S]
    assert "nvmlEventSetCreate" in bench.waiter.problem
