"""Running one of the lab's servers as a program."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import typer

from headrace_lab.cell.listening import bind
from headrace_shared.net import CannotListenError
from headrace_shared.tasks import run_program

Serve = Callable[[socket.socket, asyncio.Event], Awaitable[None]]


def run_server(name: str, host: str, port: int, serve: Serve) -> None:
    """Bind, and run `serve(socket, stop)` until SIGTERM; exit 2 with the reason where that fails."""
    try:
        sock = bind(host, port)
        run_program(lambda stop: serve(sock, stop))
    except (OSError, CannotListenError) as error:
        raise refusal(name, error) from error


def refusal(name: str, error: Exception) -> typer.Exit:
    """Say what is wrong with how the program was called; its exit status is 2."""
    typer.echo(f"headrace-lab {name}: {error}", err=True)
    return typer.Exit(2)
