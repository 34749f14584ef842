"""Run a live scenario from a command: signals, errors for people, an exit status."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from rich.console import Console
from rich.text import Text

from headrace_lab.stack import interrupt
from headrace_lab.stack.ports import NoFreePortError
from headrace_lab.stack.program import StackError
from headrace_lab.wan.tun import WanError
from headrace_shared import log


def live(main: Callable[[], Coroutine[Any, Any, int]], console: Console) -> int:
    """Run `main()` and return its exit status; 1 with a message where a program failed it."""
    log.configure("warning")

    def said(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    try:
        return interrupt.run(main, said)
    except* (StackError, NoFreePortError, WanError, OSError) as group:
        for error in leaves(group):
            console.print(Text(f"it did not work: {error}", style="bold red"), soft_wrap=True)
    return 1


def leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """The single errors inside nested groups."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
