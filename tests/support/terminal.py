"""A real terminal for programs that draw: tmux's."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("headrace")
PATIENCE_S = 40.0
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ("tmux", "-S", str(socket), "-f", "/dev/null")

    def run(self, *arguments: str) -> str:
        """What a tmux command prints."""
        made = subprocess.run(
            [*self._tmux, *arguments], capture_output=True, text=True, timeout=30, check=True, env=_environ()
        )
        return made.stdout

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        self.run("send-keys", "-t", "top", *keys)

    def seen(self) -> str:
        """What stands there now."""
        return self.run("capture-pane", "-p", "-t", "top")

    def shows(self, *words: str, without: str = "\0", seconds: float = PATIENCE_S) -> str:
        """What stands there, as soon as it has these words, and not that one."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            seen = self.seen()
            if all(word in seen for word in words) and without not in seen:
                return seen
            time.sleep(0.1)
        raise AssertionError(f"{words} do not come:\n{seen}")


def _environ() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("TMUX", "NO_COLOR")} | {
        "TERM": "xterm"
    }


@contextmanager
def terminal_of(
    directory: Path, arguments: Sequence[str], size: tuple[int, int] = (80, 24), before: str = ""
) -> Iterator[Terminal]:
    """`headrace` with these arguments on a terminal of so many columns and lines, after a shell's `before`;
    the terminal tells how the program ended."""
    made = Terminal(directory / "tmux")
    command = f"{before}{shlex.join([str(PROGRAM), *arguments])}; echo left with $?; sleep 60"
    made.run("new-session", "-d", "-s", "top", "-x", str(size[0]), "-y", str(size[1]), command)
    try:
        yield made
    finally:
        made.run("kill-server")
