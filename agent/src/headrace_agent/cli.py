"""The `headrace-agent` program."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

import headrace_agent
from headrace_agent import settings as settings_module
from headrace_agent.commands.check import command as check_command
from headrace_agent.commands.discover import command as discover_command
from headrace_agent.commands.placeholders import require_filled
from headrace_agent.commands.read.command import app as read_app
from headrace_agent.settings import AgentSettings
from headrace_shared import log
from headrace_shared.config import ConfigError
from headrace_shared.net import CannotListenError
from headrace_shared.reference import render
from headrace_shared.tls import TlsError, channel_credentials

# systemd and operators are promised an end within two seconds of SIGTERM.
EXIT_WITHIN_S: Final = 1.7

EPILOG: Final = """\
Example of a config file:

\b
  node: gpu-host-1              # this host, unique in the fleet
  site: berlin                  # the place with its own network path
  controllers:
    - address: 10.0.0.5:18000   # one entry per controller; each is independent
  cells:                        # one entry per engine on this host
    - id: berlin-1
      url: http://127.0.0.1:8000     # where this agent reaches the engine
      advertise: 10.0.1.7:8000       # where gateways reach it (an IP address)
      gpus: [0, 1]                   # indexes or UUIDs of the GPUs under it
  hardware:
    dcgm_url: http://127.0.0.1:9400/metrics
  metrics_listen: 127.0.0.1:9464     # the agent's own /metrics and /healthz

\b
Try it:
  headrace-agent discover --output agent.yaml   # what runs on this host, as a config to fill in
  headrace-agent check --config agent.yaml      # tries every source, and says how to mend each
  headrace-agent run --config agent.yaml
  headrace-agent read engine http://127.0.0.1:8000/metrics

SIGTERM or Ctrl-C says goodbye to the controllers and ends with exit code 0.
SIGHUP takes up a changed config file; one that cannot be used is logged and changes nothing.
Exit code 2: the config or a certificate cannot be used; 1: its port cannot (a service manager tries
again). stderr says which and what to do.
"""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Reads the inference engines, GPUs and network paths of this host and streams them to Headrace "
    "controllers.",
    epilog=EPILOG,
)
config_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look after config files.")
app.add_typer(config_app, name="config")
app.add_typer(read_app, name="read")
app.command(epilog=check_command.EPILOG)(check_command.check)
app.command(epilog=discover_command.EPILOG)(discover_command.discover)


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What the operator can mend is said in words and with no traceback; exit code 2 where no further
    try could end otherwise."""
    try:
        yield
    except (ConfigError, TlsError) as error:
        typer.echo(f"headrace-agent: {error}", err=True)
        raise typer.Exit(2) from error
    except CannotListenError as error:
        # A port is freed, and a host gets its address, a moment later: whoever starts this again may.
        typer.echo(f"headrace-agent: {error}", err=True)
        raise typer.Exit(1) from error


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace-agent {headrace_agent.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The agent's config file (YAML).")],
) -> None:
    """Run the agent until SIGTERM or Ctrl-C; SIGHUP takes up a changed config file."""
    from headrace_agent import service
    from headrace_shared.tasks import STDERR, hold_hangups, on_hangup, run_program, take_hangup

    hold_hangups()
    # What a watchdog ends for its silence tells where it hung.
    faulthandler.enable()
    with _clear_errors():
        settings = _load_filled(config)
        log.configure(settings.log.level, settings.log.format)

        async def main(stop: asyncio.Event) -> None:
            reload = asyncio.Event()
            on_hangup(partial(take_hangup, reload, stop, os.isatty(STDERR)))
            watching = asyncio.create_task(_bound_exit(stop, _exit_hard), name="bound the exit")
            try:
                await service.run(settings, stop, reload, partial(_load, config))
            finally:
                watching.cancel()

        run_program(main)


@config_app.command()
def reference() -> None:
    """Print every key of the config file with its type, default and bounds, as Markdown."""
    intro = (
        "What `headrace-agent config reference` prints: every key of the agent's config file. "
        "Durations end in `_s` and are seconds."
    )
    typer.echo(render(AgentSettings, "The agent's config file", intro), nl=False)


@config_app.command()
def check(path: Annotated[Path, typer.Argument(help="The config file to check.")]) -> None:
    """Check a config file and the TLS files it names; list everything that is wrong."""
    with _clear_errors():
        settings = _load(path)
    named = {
        "cells": [cell.id for cell in settings.cells],
        "member of": [member.cell for member in settings.members],
        "controllers": [str(each.address) for each in settings.controllers],
    }
    said = [f"{what}: {', '.join(names)}" for what, names in named.items() if names]
    typer.echo(f"{path}: good.\nnode {settings.node} at {settings.site}; {'; '.join(said)}")
    for warning in settings.warnings():
        typer.echo(f"warning: {warning}", err=True)


def _load(path: Path) -> AgentSettings:
    """The settings, with the TLS files they name checked. Raises ConfigError and TlsError."""
    from headrace_agent.collectors.app.http.trust import engine_trust

    settings = _load_filled(path)
    for controller in settings.controllers:
        if controller.tls is not None:
            channel_credentials(controller.tls, f"controllers ({controller.address}): tls")
    for cell in settings.cells:
        engine_trust(cell)
    return settings


def _load_filled(path: Path) -> AgentSettings:
    """The settings, with nothing of a proposal left to fill in. Raises ConfigError."""
    settings = settings_module.load(path)
    require_filled(path, settings)
    return settings


async def _bound_exit(stop: asyncio.Event, end: Callable[[], None], within_s: float = EXIT_WITHIN_S) -> None:
    """Once `stop` is set, see that the process ends, whatever a library's thread still waits for.

    A name lookup cannot be cancelled, and the interpreter waits for the thread that makes it.
    """
    await stop.wait()
    timer = threading.Timer(within_s, end)
    timer.daemon = True
    timer.start()


def _exit_hard() -> None:
    log.get("agent").warning("something did not end in time; leaving without it")
    os._exit(0)


def main() -> None:
    """Entry point of the program."""
    # The library's own lines about failed connections repeat, in another form, what is logged here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    app()
