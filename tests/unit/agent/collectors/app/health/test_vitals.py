"""Connection, processes and pages put together: what proves a death, and what only looks like one."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.health.state import Change, EngineHealth
from headrace_agent.collectors.app.health.vitals import Vitals
from headrace_agent.collectors.app.processes.belonging import Basis, Belonging
from headrace_agent.collectors.app.processes.scanner import ProcessScanner
from headrace_agent.collectors.app.processes.table import Process
from headrace_agent.collectors.readings import EngineState
from headrace_agent.settings import CellSettings
from tests.support.clock import FakeClock

SERVER, CORE = Process(100, 1, 1), Process(101, 100, 2)
TITLES = {SERVER: "vllm", CORE: "VLLM::EngineCore"}


class Cell:
    """A cell whose engine serves and whose processes are known."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.health = EngineHealth(2.0)
        self.causes: list[str] = []
        self.hurries = self.redials = 0
        self.vitals = Vitals(
            CellSettings(id="c1", url="http://127.0.0.1:8000"),
            self.health,
            ProcessScanner(self.clock),
            self.clock,
            self._took,
            self._hurry,
            self._redial,
        )
        self.lives = self.vitals.processes._lives
        self.lives.see(Belonging((SERVER,), (SERVER, CORE), Basis.SOCKET), TITLES, serving=True)
        self.serve()

    def serve(self) -> None:
        self.health.health(200, self.clock.now())
        self.health.begin(self.clock.now())
        self.health.answered(self.health.life, "answered", self.clock.now())

    def exit(self, process: Process) -> None:
        self.vitals.processes._ended(process)

    def _took(self, change: Change | None) -> None:
        if change is not None:
            self.causes.append(self.vitals.explain(change))

    def _hurry(self) -> None:
        self.hurries += 1

    def _redial(self) -> None:
        self.redials += 1


@pytest.fixture
def cell() -> Cell:
    return Cell()


def test_a_childs_end_makes_the_probe_hurry_and_decides_nothing(cell: Cell) -> None:
    cell.exit(CORE)
    assert cell.hurries == 1
    assert cell.health.state is EngineState.SERVING
    cell._took(cell.health.health(503, cell.clock.now()))
    assert cell.causes == ["process 101 (VLLM::EngineCore) ended; GET /health answered 503"]


def test_each_exit_explains_one_change(cell: Cell) -> None:
    cell.exit(CORE)
    cell._took(cell.health.health(503, cell.clock.now()))
    cell.serve()
    cell._took(cell.health.health(503, cell.clock.advance(1.0)))
    assert cell.causes[-1] == "GET /health answered 503"


def test_recoveries_are_not_explained_by_exits(cell: Cell) -> None:
    cell.health.refused("gone", cell.clock.now())
    cell.exit(CORE)
    cell._took(cell.health.health(200, cell.clock.now()))
    assert cell.causes == ["healthy again; no completion answered yet"]


@pytest.mark.parametrize("exit_first", [True, False])
def test_the_servers_end_and_that_of_its_connections_are_a_death(cell: Cell, exit_first: bool) -> None:
    """Whatever accepts connections now: an orphan may have inherited the port."""
    steps = [lambda: cell.exit(SERVER), cell.vitals.let_go]
    for step in steps if exit_first else reversed(steps):
        step()
        cell.vitals.connected()
        cell.clock.advance(0.5)
    assert cell.health.state in (EngineState.DOWN, EngineState.LOADING)
    assert "process 100 (vllm) ended; the server's connections ended with it; orphaned" in cell.causes[0]


def test_what_a_dead_server_answered_is_not_heard_any_more(cell: Cell) -> None:
    """An answer that lay unread would make it healthy again for a moment."""
    cell.vitals.let_go()
    assert cell.redials == 0
    cell.exit(SERVER)
    assert (cell.health.state, cell.redials) == (EngineState.DOWN, 1)
    cell.serve()
    cell.vitals.gone("connection closed, reconnect refused")
    assert (cell.health.state, cell.redials) == (EngineState.DOWN, 2)
    cell.vitals.gone("connection refused")
    assert cell.redials == 2


def test_the_servers_end_alone_is_none(cell: Cell) -> None:
    """What it started may serve on, as connections that stay open show."""
    cell.vitals.let_go()
    cell.vitals.connected()
    cell.clock.advance(60.0)
    cell.exit(SERVER)
    assert cell.health.state is EngineState.SERVING


def test_an_end_that_is_told_late_is_not_held_against_the_next_life(cell: Cell) -> None:
    """A process with much memory ends long after its sockets have closed."""
    cell.vitals.let_go()
    cell.vitals.gone("connection closed, reconnect refused")
    cell.clock.advance(0.5)
    cell.serve()
    cell.exit(SERVER)
    assert cell.health.state is EngineState.SERVING


def test_an_orphans_end_is_no_second_death(cell: Cell) -> None:
    cell.vitals.let_go()
    cell.exit(SERVER)
    cell.serve()
    cell.exit(CORE)
    assert cell.health.state is EngineState.SERVING


def test_a_page_of_a_younger_process_is_a_new_life(cell: Cell) -> None:
    """A restart between two probes, on a host whose processes cannot be seen."""
    cell.vitals.paged(1000.0)
    cell.clock.advance(0.1)
    cell.vitals.let_go()
    cell.vitals.connected()
    cell.clock.advance(0.4)
    cell.vitals.paged(2000.0)
    assert cell.health.state is EngineState.DOWN
    assert cell.causes == ["its metrics page is another process's than before"]


def test_pages_of_servers_that_share_an_address_are_no_restarts(cell: Cell) -> None:
    for started_at in (1000.0, 2000.0, 1000.0, 2000.0, None, 3000.0):
        cell.vitals.paged(started_at)
        cell.clock.advance(0.5)
    assert cell.health.state is EngineState.SERVING


def test_a_restart_that_was_seen_is_not_seen_twice(cell: Cell) -> None:
    cell.vitals.paged(1000.0)
    cell.clock.advance(0.1)
    cell.vitals.let_go()
    cell.vitals.gone("connection closed, reconnect refused")
    cell.serve()
    cell.clock.advance(0.4)
    cell.vitals.paged(2000.0)
    assert cell.health.state is EngineState.SERVING
