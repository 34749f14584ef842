"""The command line of the WAN emulator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from headrace_lab.servers import refusal
from headrace_lab.wan.relays import RelaySettings
from headrace_lab.wan.relays import relay as run_relays
from headrace_lab.wan.service import emulate, precise_loop, prefer
from headrace_lab.wan.settings import WanSettings
from headrace_lab.wan.tun import WanError
from headrace_shared import config, log
from headrace_shared.clock import SystemClock
from headrace_shared.config import ConfigError
from headrace_shared.tasks import run_until_signal


def wan(
    file: Annotated[Path, typer.Argument(help="The settings: near, far, paths, default.")],
    realtime: Annotated[bool, typer.Option(help="Ask for real-time priority.")] = True,
) -> None:
    """Put delay, jitter and loss between two network namespaces (needs root and /dev/net/tun).

    SIGHUP reads the file's paths again; SIGTERM ends it and takes its devices away.
    """
    log.configure()
    try:
        settings = config.load(file, WanSettings)
    except ConfigError as error:
        raise refusal("wan", error) from error
    if realtime:
        prefer()
    try:
        with asyncio.Runner(loop_factory=precise_loop) as runner:
            runner.run(run_until_signal(lambda stop: emulate(file, settings, SystemClock(), stop)))
    except (WanError, OSError) as error:
        raise refusal("wan", error) from error


def relay(file: Annotated[Path, typer.Argument(help="The settings: links, path.")]) -> None:
    """Put delay, jitter and loss on TCP connections, at the socket: needs no root, and nobody can ping it.

    SIGHUP reads the file's path again; SIGTERM ends it.
    """
    log.configure()
    try:
        settings = config.load(file, RelaySettings)
        with asyncio.Runner(loop_factory=precise_loop) as runner:
            runner.run(run_until_signal(lambda stop: run_relays(file, settings, SystemClock(), stop)))
    except (ConfigError, OSError) as error:
        raise refusal("relay", error) from error
