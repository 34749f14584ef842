"""A cell as a program: bind, load, serve, end."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from headrace_lab.cell.app import CellApp
from headrace_lab.cell.listening import Site, address_of
from headrace_lab.cell.settings import CellSettings
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.tasks import Supervisor, sleep_unless

SHUTDOWN_S = 0.2
"""How long answers under way are waited for at the end."""


async def serve(settings: CellSettings, sock: socket.socket, clock: Clock, stop: asyncio.Event) -> None:
    """Run a cell on a bound socket until `stop` is set, and close the socket.

    Raises PortInUseError if another program came to listen on its port first.
    """
    logger = log.get("cell").bind(cell=settings.cell_id)
    logger.info("bound", address=str(address_of(sock)), model=settings.model, loading_s=settings.loading_s)
    cell = CellApp(settings, clock)
    runner = web.AppRunner(cell.application(), handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        async with Supervisor() as tasks:
            tasks.spawn("engine", cell.run())
            if settings.loading_mode == "answer":
                await Site(runner, sock, settings.keep_alive_s).start()
            if await sleep_unless(stop, settings.loading_s):
                return
            cell.loaded()
            if settings.loading_mode == "refuse":
                await Site(runner, sock, settings.keep_alive_s).start()
            logger.info("serving", address=str(address_of(sock)))
            await tasks.wait(stop)
    finally:
        await runner.cleanup()
        sock.close()
        logger.info("ended")
