"""What ends a command: said in words, with an exit code, and no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from headrace_agent.commands.loop import leave

UNUSABLE = 2


class CommandError(Exception):
    """A command that cannot do what was asked; the text says why and what to do."""

    def __init__(self, message: str, code: int = UNUSABLE) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def said_clearly() -> Iterator[None]:
    """A CommandError goes to stderr, and its code to the shell."""
    try:
        yield
    except CommandError as error:
        typer.echo(f"headrace-agent: {error}", err=True)
        leave(error.code)
