"""An exporter as a program: serve, end."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from headrace_lab.cell.listening import Site, address_of
from headrace_lab.gpu.exporter import Exporter
from headrace_lab.gpu.settings import ExporterSettings
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.tasks import Supervisor

KEEP_ALIVE_S = 75.0
SHUTDOWN_S = 0.2


async def serve(settings: ExporterSettings, sock: socket.socket, clock: Clock, stop: asyncio.Event) -> None:
    """Run an exporter on a bound socket until `stop` is set, and close the socket.

    Raises PortInUseError if another program came to listen on its port first.
    """
    logger = log.get("dcgm")
    exporter = Exporter(settings, clock)
    runner = web.AppRunner(exporter.application(), handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        await Site(runner, sock, KEEP_ALIVE_S).start()
        logger.info("serving", address=str(address_of(sock)), gpus=len(settings.gpus))
        async with Supervisor() as tasks:
            tasks.spawn("exporter", exporter.run())
            await tasks.wait(stop)
    finally:
        await runner.cleanup()
        sock.close()
        logger.info("ended")
