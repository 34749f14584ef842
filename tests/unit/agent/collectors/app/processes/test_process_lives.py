"""What is made of looks at an engine's processes and of their ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.processes.belonging import Basis, Belonging
from headrace_agent.collectors.app.processes.lives import EXPLAINS_S, MAX_ORPHANS, Lives
from headrace_agent.collectors.app.processes.table import Process

SERVER, CORE, WORKER = (Process(pid, 1, pid) for pid in (100, 101, 102))
NEXT, NEXT_CORE = Process(200, 1, 200), Process(201, 200, 201)
TITLES = {SERVER: "vllm", CORE: "VLLM::EngineCore", WORKER: "VLLM::Worker", NEXT: "vllm", NEXT_CORE: "core 2"}


def found(*members: Process, servers: int = 1, basis: Basis = Basis.SOCKET) -> Belonging:
    return Belonging(members[:servers], members, basis)


def alive(*members: Process) -> Lives:
    lives = Lives()
    assert lives.see(found(*members), TITLES, serving=True) == ""
    return lives


def test_members_that_outlive_the_server_are_orphans_until_they_end() -> None:
    lives = alive(SERVER, CORE, WORKER)
    assert lives.orphans() == ""
    lives.end(SERVER, 10.0)
    assert lives.over_at == 10.0
    assert lives.orphans() == (
        "orphaned: VLLM::EngineCore (pid 101), VLLM::Worker (pid 102) still run and may hold GPU memory; "
        "end them before restarting"
    )
    lives.end(WORKER, 11.0)
    assert "VLLM::EngineCore (pid 101) still runs and may hold GPU memory; end it" in lives.orphans()
    lives.end(CORE, 12.0)
    assert lives.orphans() == ""
    assert lives.running == []


def test_a_server_that_ends_last_leaves_nobody() -> None:
    lives = alive(SERVER, CORE)
    lives.end(CORE, 10.0)
    assert lives.over_at is None
    lives.end(SERVER, 10.1)
    assert (lives.over_at, lives.orphans()) == (10.1, "")


def test_the_life_is_over_with_the_last_of_several_servers() -> None:
    lives = Lives()
    lives.see(found(SERVER, NEXT, CORE, servers=2), TITLES, serving=True)
    lives.end(SERVER, 10.0)
    assert (lives.over_at, lives.orphans()) == (None, "")
    lives.end(NEXT, 11.0)
    assert lives.over_at == 11.0
    assert "pid 101" in lives.orphans()


def test_orphans_stay_named_beside_the_next_life() -> None:
    lives = alive(SERVER, CORE)
    lives.end(SERVER, 10.0)
    assert lives.see(found(NEXT, NEXT_CORE), TITLES, serving=False) == ""
    assert lives.over_at is None
    assert "pid 101" in lives.orphans()
    assert "201" not in lives.orphans()


def test_a_reused_pid_is_no_orphan() -> None:
    lives = alive(SERVER, CORE)
    lives.end(SERVER, 10.0)
    lives.end(CORE, 10.0)
    lives.see(found(Process(101, 1, started=99999)), {}, serving=True)
    assert lives.orphans() == ""


def test_an_orphan_with_the_listening_socket_begins_a_life_only_where_it_answers() -> None:
    lives = alive(SERVER, CORE)
    lives.end(SERVER, 10.0)
    lives.see(found(CORE), TITLES, serving=False)
    assert (lives.over_at, lives.servers) == (10.0, set())
    assert "pid 101" in lives.orphans()
    lives.see(found(CORE), TITLES, serving=True)
    assert (lives.over_at, lives.servers) == (None, {CORE})
    assert lives.orphans() == ""


def test_other_processes_on_the_port_are_another_life() -> None:
    lives = alive(SERVER, CORE)
    proof = lives.see(found(NEXT, NEXT_CORE), TITLES, serving=True)
    assert proof == "process 200 (vllm) listens where process 100 (vllm) did"
    assert lives.servers == {NEXT}
    assert "pid 100" in lives.orphans(), "it may still hold memory"


def test_a_guess_by_command_line_is_no_proof_of_another_life() -> None:
    lives = Lives()
    lives.see(found(SERVER, basis=Basis.COMMAND_LINE), TITLES, serving=True)
    assert lives.see(found(NEXT, basis=Basis.SOCKET), TITLES, serving=True) == ""
    assert lives.orphans() == ""


def test_a_look_that_finds_nothing_changes_nothing() -> None:
    lives = alive(SERVER, CORE)
    assert lives.see(Belonging(trouble="hidden"), {}, serving=True) == ""
    assert lives.running == [SERVER, CORE]


def test_titles_that_change_are_taken_up() -> None:
    lives = alive(SERVER, CORE)
    lives.see(found(SERVER, CORE), {CORE: "VLLM::EngineCore_DP0"}, serving=True)
    lives.end(SERVER, 10.0)
    assert "VLLM::EngineCore_DP0 (pid 101)" in lives.orphans()


def test_exits_explain_what_follows_for_a_while() -> None:
    lives = alive(SERVER, CORE)
    lives.end(CORE, 10.0)
    assert lives.ended_lately(10.0 + EXPLAINS_S) == "process 101 (VLLM::EngineCore) ended"
    assert lives.ended_lately(10.1 + EXPLAINS_S) == ""


def test_many_exits_are_not_listed_in_full() -> None:
    workers = [Process(300 + i, 100, 300 + i, f"w{i}") for i in range(8)]
    lives = alive(SERVER, *workers)
    for worker in workers:
        lives.end(worker, 10.0)
    assert lives.ended_lately(10.0) == "process 300 (w0), process 301 (w1), process 302 (w2) and 5 more ended"


def test_orphans_are_bounded() -> None:
    lives = Lives()
    for life in range(10):
        server = Process(1000 * life, 1, 1)
        lives.see(found(server, *(Process(1000 * life + i, 1, 1) for i in range(1, 30))), {}, serving=True)
        lives.end(server, 10.0)
    assert len(lives.running) == MAX_ORPHANS


@given(st.lists(st.tuples(st.sampled_from(["see", "end"]), st.integers(0, 5), st.booleans()), max_size=30))
def test_nobody_who_ended_is_kept_and_no_server_is_an_orphan(steps: list[tuple[str, int, bool]]) -> None:
    everybody = [Process(10 + i, 1, i) for i in range(6)]
    lives, ended = Lives(), set()
    for what, which, serving in steps:
        if what == "end":
            lives.end(everybody[which], 1.0)
            ended.add(everybody[which])
        else:
            left = [each for each in everybody[which:] if each not in ended]
            lives.see(found(*left) if left else Belonging(), {}, serving)
        assert not ended & set(lives.running)
        assert not any(f"(pid {server.pid})" in lives.orphans() for server in lives.servers)
        assert len(set(lives.running)) == len(lives.running)
