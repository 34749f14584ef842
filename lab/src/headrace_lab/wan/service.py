"""The emulator as a program: devices, forwarding, and new figures on SIGHUP."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
from contextlib import ExitStack
from pathlib import Path as FilePath

from headrace_lab.wan.delays import Delays
from headrace_lab.wan.forwarder import Forwarder
from headrace_lab.wan.settings import WanSettings
from headrace_lab.wan.tun import tun
from headrace_shared import config, log
from headrace_shared.clock import Clock
from headrace_shared.config import ConfigError
from headrace_shared.tasks import Supervisor


def precise_loop() -> asyncio.AbstractEventLoop:
    """A loop that wakes to the microsecond: epoll's own timer counts whole milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def prefer() -> None:
    """Ask for the processor before others: a packet that waits for it has a longer path than was set."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError as error:
        log.get("wan").warning("without real-time priority a busy machine adds delay", why=error.strerror)


async def emulate(file: FilePath, settings: WanSettings, clock: Clock, stop: asyncio.Event) -> None:
    """Run until `stop` is set; SIGHUP reads `paths` and `default` of `file` again. Raises WanError."""
    logger = log.get("wan")
    delays = Delays(settings.paths, settings.default, settings.seed)
    with ExitStack() as stack:
        near, far = (
            stack.enter_context(tun(end, settings.device, settings.mtu))
            for end in (settings.near, settings.far)
        )
        forwarder = Forwarder(near, far, delays, clock, settings.queue_packets)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, _reload, file, settings, delays)
        stack.callback(loop.remove_signal_handler, signal.SIGHUP)
        async with Supervisor() as tasks:
            tasks.spawn("forwarder", forwarder.run())
            logger.info("forwarding", near=settings.near.namespace, far=settings.far.namespace)
            await tasks.wait(stop)
    counts = forwarder.counts
    logger.info(
        "ended",
        delivered=counts.delivered,
        lost=counts.lost,
        overflowed=counts.overflowed,
        failed=counts.failed,
        mean_late_ms=round(counts.mean_late_ms, 3),
    )


def _reload(file: FilePath, settings: WanSettings, delays: Delays) -> None:
    """Take new paths; a file that cannot be used changes nothing."""
    logger = log.get("wan")
    try:
        fresh = config.load(file, WanSettings)
    except ConfigError as error:
        logger.error("paths kept: the file cannot be used", why=str(error))
        return
    if fresh.model_copy(update={"paths": settings.paths, "default": settings.default}) != settings:
        logger.error("paths kept: only paths and default can change while running")
        return
    delays.set_paths(fresh.paths, fresh.default)
    logger.info("paths set", paths=len(fresh.paths))
