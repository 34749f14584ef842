"""Which processes are an engine's, given what can be seen of a host."""

from __future__ import annotations

from collections.abc import Mapping

from headrace_agent.collectors.app.processes.belonging import MAX_PROCESSES, Basis, Belonging, find, grown
from headrace_agent.collectors.app.processes.listing import Listing, Namespace
from headrace_agent.collectors.app.processes.sockets import Listener
from headrace_agent.collectors.app.processes.table import Process, ProcessTable

AGENT, SHELL, ENGINE_USER = 50, 40, 1000
LISTENER = Listener("0.0.0.0", 8000, ENGINE_USER, 77)


def process(pid: int, parent: int, name: str = "python3", user: int = ENGINE_USER) -> Process:
    return Process(pid, parent, pid, name, user)


HOST = [
    process(1, 0, "systemd", 0),
    process(SHELL, 1, "bash", 0),
    process(AGENT, SHELL, "headrace-agent", 0),
    process(100, 1, "vllm"),
    process(101, 100),
    process(102, 101),
    process(200, 1, "nginx"),
]


def seen(
    holders: tuple[int, ...],
    more: list[Process] | None = None,
    lines: Mapping[int, tuple[str, ...]] | None = None,
    address: str | None = "127.0.0.1",
    port: int = 8000,
) -> Belonging:
    listing = Listing(ProcessTable([*HOST, *(more or [])]), (LISTENER,), {77: holders} if holders else {})
    return find(listing, address, port, lambda pid: (lines or {}).get(pid, ()), AGENT)


def pids(processes: tuple[Process, ...]) -> list[int]:
    return [each.pid for each in processes]


def test_the_listener_and_all_below_it() -> None:
    found = seen((100,))
    assert (pids(found.servers), pids(found.members)) == ([100], [100, 101, 102])
    assert (found.basis, found.trouble) == (Basis.SOCKET, "")


def test_a_core_that_inherited_the_socket_is_no_server() -> None:
    assert pids(seen((100, 101)).servers) == [100]


def test_several_servers_that_share_a_port() -> None:
    found = seen((100, 300), [process(300, 1), process(301, 300)])
    assert (pids(found.servers), pids(found.members)) == ([100, 300], [100, 101, 102, 300, 301])


def test_systemd_holds_what_it_passed_on_and_is_no_engine() -> None:
    assert pids(seen((1, 100)).servers) == [100]


def test_the_agent_watches_neither_itself_nor_what_started_it() -> None:
    for own in (AGENT, SHELL):
        found = seen((own,))
        assert found.members == ()
        assert "held by the agent itself" in found.trouble


def test_what_launched_a_server_belongs_to_it() -> None:
    """TGI's launcher starts the server that listens, and beside it those that hold the GPUs."""
    tgi = [process(300, 1, "text-generation"), process(301, 300, "text-generation"), process(302, 300)]
    found = seen((301,), tgi)
    assert (pids(found.servers), pids(found.members)) == ([301], [300, 301, 302])


def test_there_is_a_bound() -> None:
    many = [process(1000 + i, 100) for i in range(500)]
    found = seen((100,), many)
    assert len(found.members) == MAX_PROCESSES
    assert pids(found.members)[0] == 100


def test_hidden_holders_are_found_by_their_command_line() -> None:
    """Another user's descriptors are hidden, what it was started with is not."""
    lines = {100: ("vllm", "serve", "m", "--port", "8000"), 101: ("vllm", "serve", "m", "--port", "8000")}
    found = seen((), lines=lines)
    assert (pids(found.servers), pids(found.members)) == ([100], [100, 101, 102])
    assert found.basis is Basis.COMMAND_LINE


def test_command_lines_of_other_users_say_nothing() -> None:
    """Who asks for port 8000 need not serve it; the socket's owner is known."""
    found = seen((), [process(300, 1, "curl", user=7)], {300: ("curl", "8000"), 100: ("vllm", "--port=8000")})
    assert pids(found.servers) == [100]


def test_what_cannot_be_told_is_said_with_a_remedy() -> None:
    for lines in ({}, {100: ("a", "8000"), 200: ("b", "8000")}):
        found = seen((), lines=lines)
        assert found.members == ()
        assert "CAP_SYS_PTRACE" in found.trouble
        assert "100 ms probe" in found.trouble
    assert "2 processes name port 8000" in found.trouble


def test_an_engine_behind_dockers_proxy_is_found_by_the_port_inside() -> None:
    proxy = process(400, 1, "docker-proxy", user=0)
    inside = [process(500, 1, "tini", user=0), process(501, 500, "vllm", user=0), process(502, 501, user=0)]
    lines = {
        400: ("/usr/bin/docker-proxy", "-proto", "tcp", "-host-port", "8000", "-container-port", "9000"),
        501: ("vllm", "serve", "m", "--port", "9000"),
    }
    found = seen((400,), [proxy, *inside], lines)
    assert (pids(found.servers), pids(found.members)) == ([501], [501, 502])


INSIDE = Namespace(frozenset({"172.17.0.2"}), (Listener("0.0.0.0", 9000, 0, 88),))


def test_an_engine_in_a_container_is_found_by_its_own_address() -> None:
    listing = Listing(ProcessTable(HOST), (LISTENER,), {77: (200,), 88: (100,)}, inside=(INSIDE,))
    for address, port, servers in (
        ("172.17.0.2", 9000, [100]),
        ("172.17.0.2", 9001, []),
        ("172.17.0.3", 9000, []),
    ):
        assert pids(find(listing, address, port, lambda pid: (), AGENT).servers) == servers


def test_an_engine_behind_dockers_proxy_is_found_by_the_socket_inside() -> None:
    proxy = process(400, 1, "docker-proxy", user=0)
    listing = Listing(ProcessTable([*HOST, proxy]), (LISTENER,), {77: (400,), 88: (100,)}, inside=(INSIDE,))
    line = ("docker-proxy", "-host-port", "8000", "-container-ip", "172.17.0.2", "-container-port", "9000")
    found = find(listing, "127.0.0.1", 8000, lambda pid: line if pid == 400 else (), AGENT)
    assert (pids(found.servers), found.basis) == ([100], Basis.SOCKET)


def test_nothing_listens() -> None:
    trouble = seen((100,), port=8001).trouble
    assert "nothing that can be seen listens on port 8001" in trouble
    assert "CAP_SYS_PTRACE" in trouble


def test_a_listener_on_another_address_is_another_engine() -> None:
    listing = Listing(ProcessTable(HOST), (Listener("10.0.0.1", 8000, 0, 77),), {77: (100,)})
    assert find(listing, "127.0.0.1", 8000, lambda pid: (), AGENT).members == ()
    assert pids(find(listing, "10.0.0.1", 8000, lambda pid: (), AGENT).members) == [100, 101, 102]


def test_grown() -> None:
    server = process(100, 1)
    later = ProcessTable([server, process(103, 100)])
    assert pids(grown(later, {server}, Basis.SOCKET).members) == [100, 103]
    reused = ProcessTable([Process(100, 1, started=9999)])
    assert grown(reused, {server}, Basis.SOCKET) == Belonging()
