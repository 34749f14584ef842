"""The operators' side of a controller: what it remembers, shows, records, and serves."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from aiohttp import web

from headrace_controller.admin import api
from headrace_controller.admin.access import Access
from headrace_controller.admin.surface import Surface
from headrace_controller.control.fleet_view import Views
from headrace_controller.control.gauges import CellGauges
from headrace_controller.control.intents.operators import Operators
from headrace_controller.control.intents.records import Wish
from headrace_controller.control.intents.store import SqliteStore
from headrace_controller.control.intents.writer import StoreWriter
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.control.picking import PickerFeed
from headrace_controller.control.recording.recorder import Recorder
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.server import XdsServer
from headrace_shared.clock import Clock
from headrace_shared.net import HostPort, PortInUseError
from headrace_shared.tls import FollowingContext

STOP_GRACE_S: Final = 0.3


class Memory:
    """What operators asked of a controller before this one; blocks while it is read."""

    def __init__(self, settings: ControllerSettings, metrics: Metrics) -> None:
        self.writer: StoreWriter | None = None
        self.wishes: tuple[Wish, ...] | None = None
        if settings.state_dir is not None:
            store = SqliteStore(settings.state_dir, settings.region, settings.admin.account_acts)
            self.writer = StoreWriter(store, on_lost=metrics.intents_lost.inc)
            self.wishes = self.writer.load()


class Desk:
    """Everything between operators and the control loop. Raises ConfigError for tokens that are no use."""

    def __init__(
        self,
        settings: ControllerSettings,
        clock: Clock,
        loop: ControlLoop,
        xds: XdsServer,
        metrics: Metrics,
        memory: Memory,
        known: Sequence[str] = (),
        picking: PickerFeed | None = None,
    ) -> None:
        access = Access.of(settings.admin)
        self._writer = memory.writer
        self.operators = Operators(settings, clock, loop, memory.writer)
        self.views = Views(settings, clock, loop, xds)
        self.recorder = _recorder(settings, clock, loop, metrics)
        loop.witnesses.append(self.operators)
        if self.recorder is not None:
            loop.witnesses.append(self.recorder)
        self.operators.restore(memory.wishes or (), known)
        self.surface = Surface(
            clock=clock,
            loop=loop,
            views=self.views,
            gauges=CellGauges(loop, self.views.rows.weights, xds),
            operators=self.operators,
            access=access,
            baseline=settings.baseline or "",
            recording=lambda: "off" if self.recorder is None else self.recorder.state,
            on_refused=lambda reason: metrics.admin_refused.labels(reason).inc(),
            picking=picking,
        )
        self.app = api.build(self.surface, metrics.registry)

    def use(self, settings: ControllerSettings, access: Access) -> None:
        """Other settings are in force from now on."""
        self.surface.access = access
        self.operators.use(settings)
        if self.recorder is not None:
            self.recorder.use(settings)

    def close(self) -> None:
        """Write what is waiting, for a moment at most."""
        if self.recorder is not None:
            self.recorder.close()
        if self._writer is not None:
            self._writer.close()

    async def serve(
        self, stack: AsyncExitStack, address: HostPort, tls: Callable[[], ssl.SSLContext] | None
    ) -> None:
        """Serve the pages until the stack unwinds; `tls` gives each new connection its context. Raises
        PortInUseError."""
        runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=STOP_GRACE_S)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        context = FollowingContext(tls) if tls is not None else None
        try:
            await web.TCPSite(runner, address.host, address.port, ssl_context=context).start()
        except OSError as error:
            raise PortInUseError("listen.admin", address) from error


def _recorder(
    settings: ControllerSettings, clock: Clock, loop: ControlLoop, metrics: Metrics
) -> Recorder | None:
    """None where nothing is scored, or nothing may be written."""
    if settings.state_dir is None or not settings.recording.enabled or settings.baseline is not None:
        return None
    return Recorder(
        settings,
        clock,
        loop,
        on_bytes=metrics.recorded.inc,
        on_lost=lambda reason: metrics.recording_lost.labels(reason).inc(),
    )
