"""Where `headrace` starts: `status` at once, everything else after the whole program is loaded."""

from __future__ import annotations

import os
import sys
from typing import Final

from headrace_controller.operator_cli import status

INTERRUPTED: Final = 130
"""The exit status of a program that Ctrl-C ended."""


def main() -> None:
    """Entry point of `headrace`."""
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["status"]:
        asked = status.read(arguments[1:], os.environ)
        if asked is not None:
            status.status(asked.client(), asked.check, asked.as_json)
            return
    # Typer and what it brings take longer to load than a controller takes to answer.
    from headrace_controller.operator_cli.program import app

    app()
