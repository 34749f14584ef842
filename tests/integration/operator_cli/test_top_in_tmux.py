"""`headrace top` on a real terminal: tmux's, of 80x24."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.operator_cli.admin_fake import Admin, serving
from tests.support import fleet_pages as pages

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux"),
]
PROGRAM = Path(sys.executable).with_name("headrace")
CELLS = [pages.cell("c1"), pages.cell("c2", pressure=0.7), pages.failed("c3", "paris")]
PATIENCE_S = 20.0


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ("tmux", "-S", str(socket), "-f", "/dev/null")

    def run(self, *arguments: str) -> str:
        made = subprocess.run(
            [*self._tmux, *arguments], capture_output=True, text=True, timeout=10, check=True, env=_environ()
        )
        return made.stdout

    def press(self, *keys: str) -> None:
        self.run("send-keys", "-t", "top", *keys)

    def shows(self, *words: str, without: str = "\0") -> str:
        """What stands there, as soon as it has these words, and not that one."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            seen = self.run("capture-pane", "-p", "-t", "top")
            if all(word in seen for word in words) and without not in seen:
                return seen
            time.sleep(0.1)
        raise AssertionError(f"{words} do not come:\n{seen}")


def _environ() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("TMUX", "NO_COLOR")} | {
        "TERM": "xterm"
    }


@pytest.fixture
def admin() -> Iterator[Admin]:
    with serving() as started:
        started.answer("/api/v1/status", pages.status(*CELLS))
        started.answer("/api/v1/cells?limit=1000", pages.page(*CELLS))
        for cell in CELLS:
            path = f"/api/v1/cells/{cell.id}"
            told = {"cell": cell.id, "accepted": True, "kept": True, "state": "DRAINING"}
            started.answer(f"{path}/drain", told, method="POST", status=202)
            started.answer(path, pages.detail(cell))
            started.answer(f"{path}/explain", {"explanations": []})
        yield started


@pytest.fixture
def terminal(tmp_path: Path, admin: Admin) -> Iterator[Terminal]:
    made = Terminal(tmp_path / "tmux")
    command = shlex.join([str(PROGRAM), "top", "--url", admin.url])
    after = "; echo left with $?; sleep 60"
    made.run("new-session", "-d", "-s", "top", "-x", "80", "-y", "24", command + after)
    try:
        yield made
    finally:
        made.run("kill-server")


def test_a_cell_is_found_looked_at_and_drained(admin: Admin, terminal: Terminal) -> None:
    seen = terminal.shows("region eu-1: weights are published; 2 of 3 cells READY", "paris: 0 of 1 READY")
    assert all(len(line) <= 80 for line in seen.splitlines())
    terminal.press("/", "c", "2", "Enter")
    terminal.shows("c2 at berlin: READY", without="paris")
    terminal.press("Enter")
    terminal.shows("c2 at berlin, node berlin-node", "kv_fill", "esc back")
    terminal.press("Escape")
    terminal.shows("? keys")
    terminal.press("d")
    terminal.shows("Drain c2 at berlin?")
    terminal.press("y")
    terminal.shows("c2: DRAINING")
    assert [body for method, _, body in admin.asked if method == "POST"] == [
        {"cause": "asked by the operator in headrace top"}
    ]
    admin.answer("/api/v1/status", {"error": "restarting"}, status=503)
    terminal.shows("STALE: figures of", "restarting; trying again", "c2")
    admin.answer("/api/v1/status", pages.status(*CELLS))
    terminal.shows("region eu-1: weights are published")
    terminal.press("q")
    terminal.shows("left with 0")
