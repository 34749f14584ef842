"""`headrace top` on a real terminal: tmux's, of 80x24."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.operator_cli.admin_fake import Admin, serving
from tests.support import fleet_pages as pages
from tests.support.terminal import Terminal, needs_tmux, terminal_of

pytestmark = [pytest.mark.extra, needs_tmux]
CELLS = [pages.cell("c1"), pages.cell("c2", pressure=0.7), pages.failed("c3", "paris")]


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
    with terminal_of(tmp_path, ["top", "--url", admin.url]) as made:
        yield made


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
