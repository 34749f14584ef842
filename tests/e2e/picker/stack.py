"""A gateway whose picker a test can script, stall and take away, over small engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from headrace_controller.picker.candidates import Candidates, Lineup
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.requests import Ask, Outcome, Pick, Served
from headrace_controller.picker.service import Hooks, PickerService, PickStream
from headrace_controller.settings import CapabilitySettings, EnvoySettings, GatewaySettings, PickerSettings
from headrace_controller.wire.call import Call, Method, Receiver
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from tests.e2e.xds.cells import Cell
from tests.e2e.xds.envoy import running_envoy
from tests.e2e.xds.stack import GATEWAY, PATIENT_CHECKS_S, Control, Stack, until_async
from tests.support.ports import free_port

MODEL = "m"


class ScriptedPicker(Picker):
    """Names what the test says, where it says something. `asks` are all that came."""

    def __init__(self, settings: PickerSettings) -> None:
        super().__init__(settings, CapabilitySettings(), np.random.default_rng(1))
        self.asks: list[Ask] = []
        self.script: tuple[str, ...] | None = None
        self.clock = SystemClock()

    def pick(self, gateway: str, ask: Ask, now: float) -> Pick:
        self.asks.append(ask)
        assert gateway == GATEWAY
        self.refresh(now)
        if self.script is None:
            return super().pick(gateway, ask, now)
        return Pick(Outcome.NAMED, self.script, self.script)

    def refresh(self, now: float) -> None:
        """The fleet is as it was."""
        self.candidates = {
            key: Candidates(each.lineup, now, each.rtt_s, each.penalty)
            for key, each in self.candidates.items()
        }

    def line_up(self, cells: Mapping[Cell, int]) -> None:
        """All these may be named."""
        slots = [self.join(cell.name, MODEL, 1.0, 0.0) for cell in cells]
        count = len(slots)
        lineup = Lineup(
            MODEL,
            [cell.name for cell in cells],
            [cell.address for cell in cells],
            np.array(slots, dtype=np.int64),
            np.full(count, np.inf),
        )
        self.candidates = {(GATEWAY, MODEL): Candidates(lineup, 0.0, np.zeros(count), np.ones(count))}


class PickedControl(Control):
    """The controller's side with a picker; `stall_s` is how long each message of a stream waits."""

    def __init__(self, gateway: GatewaySettings, picker_settings: PickerSettings) -> None:
        # Nobody is asked a second time, nor taken out, for being late: a busy machine is.
        settings = EnvoySettings(
            expose_upstream=True, health_check_timeout_s=PATIENT_CHECKS_S, hedge_after_s=20.0
        )
        super().__init__(gateway, settings)
        self.picker_settings = picker_settings
        self.picker = ScriptedPicker(picker_settings)
        self.served: list[Served] = []
        self.outcomes: list[Outcome] = []
        self.stall_s = 0.0

    async def start(self) -> None:
        hooks = Hooks(lambda outcome, _: self.outcomes.append(outcome), self.served.append)
        self.service = StallingService(self, SystemClock(), hooks)
        await super().start()
        self.builder = SnapshotBuilder(
            self._gateway, self._settings, epoch_ns=SystemClock().wall_ns(), picker=self.picker_settings
        )

    async def stop(self) -> None:
        self.service.close()
        await super().stop()

    def more(self) -> Mapping[str, Method]:
        return self.service.methods()


class StallingService(PickerService):
    """A service that sleeps before it reads, when the test says so."""

    def __init__(self, control: PickedControl, clock: SystemClock, hooks: Hooks) -> None:
        super().__init__(control.picker, clock, control.picker_settings, [GATEWAY], hooks)
        self._control = control

    def begin(self, call: Call) -> Receiver:
        if self._control.stall_s:
            return Stalled(self, call, self._control.stall_s)
        return super().begin(call)

    def begin_now(self, call: Call) -> PickStream:
        return super().begin(call)


class Stalled:
    """A call whose messages are heard only after a while."""

    def __init__(self, service: StallingService, call: Call, stall_s: float) -> None:
        self._service, self._call = service, call
        self._later: list[Callable[[PickStream], None]] = []
        asyncio.get_running_loop().call_later(stall_s, self._go_on)

    def message(self, data: bytes) -> None:
        self._later.append(lambda stream: stream.message(data))

    def half_closed(self) -> None:
        self._later.append(PickStream.half_closed)

    def closed(self) -> None:
        self._later.append(PickStream.closed)

    def _go_on(self) -> None:
        stream = self._service.begin_now(self._call)
        for each in self._later:
            each(stream)


class PickedStack(Stack):
    """A stack whose control has a picker."""

    control: PickedControl

    @property
    def picker(self) -> ScriptedPicker:
        return self.control.picker


@asynccontextmanager
async def running_stack(
    directory: Path, weights: Mapping[Cell, int], **settings: Any
) -> AsyncIterator[PickedStack]:
    """All of it, once Envoy serves the pool by these weights. No pick is left to them, unless it is told
    in the settings."""
    port = free_port()
    gateway = GatewaySettings(id=GATEWAY, host="127.0.0.1", listen=HostPort("127.0.0.1", port))
    # Far longer than settings allow: on a busy machine a pick may take its time, and that is not the point.
    patient = {"timeout_s": 5.0, "trickle": 0.0, **settings}
    control = PickedControl(gateway, PickerSettings(enabled=True).model_copy(update=patient))
    control.picker.line_up(weights)
    await control.start()
    try:
        control.publish({MODEL: weights})
        async with running_envoy(GATEWAY, control.xds_address, directory) as envoy:
            await until_async(envoy.live)
            timeout = aiohttp.ClientTimeout(total=60)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                stack = PickedStack(control, envoy, f"http://127.0.0.1:{port}", session)
                await control.in_force()
                await stack.passing()
                yield stack
    finally:
        await control.stop()
