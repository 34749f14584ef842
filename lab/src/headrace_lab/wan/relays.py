"""Relays as a program: all of a site's, with a new path on SIGHUP."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path as FilePath
from typing import Self, TypeAlias

from pydantic import Field, model_validator

from headrace_lab.wan.relay import Relay
from headrace_lab.wan.settings import Path
from headrace_shared import config, log
from headrace_shared.clock import Clock
from headrace_shared.config import ConfigError, Settings
from headrace_shared.net import HostPortField

_Accept: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class Link(Settings):
    """What connects to `listen` is passed on to `target`."""

    listen: HostPortField
    target: HostPortField


class RelaySettings(Settings):
    """The whole file: the links of one site, and the path that they share."""

    links: tuple[Link, ...] = Field(min_length=1, max_length=1024)
    path: Path = Path()

    @model_validator(mode="after")
    def _apart(self) -> Self:
        places = [str(link.listen) for link in self.links]
        twice = sorted({each for each in places if places.count(each) > 1})
        if twice:
            raise ValueError(f"links: {twice[0]} is listened on twice; give each link a port of its own")
        return self


class _Force:
    """The path in force."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self) -> Path:
        return self.path


async def relay(file: FilePath, settings: RelaySettings, clock: Clock, stop: asyncio.Event) -> None:
    """Run until `stop` is set; SIGHUP reads `path` of `file` again. Raises OSError where a port is taken."""
    force = _Force(settings.path)
    loop = asyncio.get_running_loop()
    open_now: set[asyncio.Task[None]] = set()

    def accept(made: Relay) -> _Accept:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(made.serve(reader, writer), name="connection")
            open_now.add(task)
            task.add_done_callback(open_now.discard)

        return take

    async with AsyncExitStack() as stack:
        loop.add_signal_handler(signal.SIGHUP, _reload, file, settings, force)
        stack.callback(loop.remove_signal_handler, signal.SIGHUP)
        stack.push_async_callback(_end, open_now)
        for link in settings.links:
            made = Relay(str(link.listen), link.target, force, clock)
            server = await asyncio.start_server(accept(made), link.listen.host, link.listen.port)
            stack.callback(server.close)
        log.get("relay").info("relaying", links=len(settings.links))
        await stop.wait()


async def _end(open_now: set[asyncio.Task[None]]) -> None:
    tasks = list(open_now)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _reload(file: FilePath, settings: RelaySettings, force: _Force) -> None:
    """Take a new path; a file that cannot be used changes nothing."""
    logger = log.get("relay")
    try:
        fresh = config.load(file, RelaySettings)
    except ConfigError as error:
        logger.error("path kept: the file cannot be used", why=str(error))
        return
    if fresh.links != settings.links:
        logger.error("path kept: only path can change while running")
        return
    force.path = fresh.path
    logger.info("path set", delay_ms=fresh.path.delay_ms, down=fresh.path.down)
