"""Which ports are asked, and what their answers make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_agent.collectors.app.processes.listing import Listing
from headrace_agent.collectors.app.processes.sockets import Listener
from headrace_agent.collectors.app.processes.table import ProcessTable
from headrace_agent.collectors.readings import Model
from headrace_agent.commands.discover import local
from headrace_agent.commands.discover.candidates import MAX_PORTS, OTHERS, choose, parse_ports
from headrace_agent.commands.discover.engines import recognise
from headrace_agent.commands.discover.found import (
    Answers,
    Candidate,
)
from headrace_agent.commands.errors import CommandError

EPHEMERAL = (32768, 60999)


def listing(**held: tuple[str, int, str]) -> tuple[Listing, dict[int, tuple[str, ...]]]:
    """Listening sockets, each `name=(address, port, command line)` of a process of its own."""
    listeners, holders, lines = [], {}, {}
    for pid, (address, port, line) in enumerate(held.values(), start=100):
        listeners.append(Listener(address, port, 0, pid))
        holders[pid] = (pid,)
        lines[pid] = tuple(line.split())
    return Listing(ProcessTable(()), tuple(listeners), holders), lines


def chosen(only: tuple[int, ...] = (), **held: tuple[str, int, str]) -> list[Candidate]:
    found, lines = listing(**held)
    return choose(found, lambda pid: lines.get(pid, ()), EPHEMERAL, only)


def test_likely_ports_come_first_and_others_after() -> None:
    found = chosen(
        web=("0.0.0.0", 7777, "python3 app.py"),
        usual=("0.0.0.0", 8000, "python3 app.py"),
        named=("0.0.0.0", 9999, "/usr/bin/python3 serve.py --port 9999"),
        engine=("0.0.0.0", 9101, "/opt/bin/vllm serve llama --port=9101"),
    )
    assert [each.port for each in found] == [9101, 9999, 8000, 7777]
    assert [each.like_engine for each in found] == [True, False, False, False]


@pytest.mark.parametrize("port", [22, 5432, 6379, 2375, 6443, 29500, 32768, 45000, 60999])
def test_ports_that_are_none_of_an_engines_are_let_alone(port: int) -> None:
    assert chosen(other=("0.0.0.0", port, "something -d")) == []
    assert port in OTHERS or EPHEMERAL[0] <= port <= EPHEMERAL[1]


def test_a_port_that_a_command_line_names_is_asked_wherever_it_lies() -> None:
    assert chosen(engine=("0.0.0.0", 45000, "vllm serve m --port 45000"))
    assert chosen(engine=("0.0.0.0", 45000, "llama-server --bind 0.0.0.0:45000"))
    assert not chosen(worker=("127.0.0.1", 45000, "vllm serve m --port 8000")), "its inner ports are its own"


def test_a_port_that_docker_publishes_is_asked() -> None:
    line = "/usr/bin/docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 45000 -container-ip 172.17.0.2"
    assert [each.port for each in chosen(published=("0.0.0.0", 45000, line))] == [45000]


@pytest.mark.parametrize("line", ["/usr/bin/envoy -c x", "nginx", "python3 /opt/bin/vllm-router --port 8000"])
def test_what_only_passes_requests_on_is_not_asked(line: str) -> None:
    assert chosen(proxy=("0.0.0.0", 8000, line)) == []


def test_named_ports_are_asked_and_no_others_even_where_nothing_seems_to_listen() -> None:
    found = chosen((5432, 8001), db=("0.0.0.0", 5432, "postgres"), usual=("0.0.0.0", 8000, "vllm serve m"))
    assert [(each.port, each.host) for each in found] == [(5432, "127.0.0.1"), (8001, "127.0.0.1")]


@pytest.mark.parametrize(
    ("address", "host", "url"),
    [
        ("0.0.0.0", "127.0.0.1", "http://127.0.0.1:8000"),
        ("127.0.0.1", "127.0.0.1", "http://127.0.0.1:8000"),
        ("::", "::1", "http://[::1]:8000"),
        ("10.0.0.7", "10.0.0.7", "http://10.0.0.7:8000"),
    ],
)
def test_a_port_is_asked_at_an_address_where_it_answers(address: str, host: str, url: str) -> None:
    (found,) = chosen(engine=(address, 8000, "vllm"))
    assert (found.host, found.url) == (host, url)


def test_no_more_than_so_many_ports_are_asked() -> None:
    many = {f"p{port}": ("0.0.0.0", port, "x") for port in range(10_000, 10_200)}
    assert len(chosen(**many)) == MAX_PORTS


def test_lists_of_ports() -> None:
    assert parse_ports("8000, 8001,9000-9002") == (8000, 8001, 9000, 9001, 9002)
    for bad in ("", "x", "0", "65536", "9000-8000", "1-2000", "8000;8001", "-5"):
        with pytest.raises(CommandError, match="--ports"):
            parse_ports(bad)


AT = Candidate("127.0.0.1", 8000, ("0.0.0.0",), frozenset({100}))
OTHER = Candidate("127.0.0.1", 8002, ("0.0.0.0",), frozenset({100}))
MODELS = (Model("llama", 8192),)


@pytest.mark.parametrize(
    ("answers", "kind", "shows"),
    [
        (Answers(True, ("vllm",), models_status=200, models=MODELS, version="0.10.2"), "vllm", True),
        (Answers(True, ("sglang",), models_status=401), "sglang", True),
        (Answers(True, models_status=200, models=MODELS, owner="vllm"), "vllm", False),
        (Answers(True, models_status=200, models=MODELS, owner="tensorrt_llm"), "tensorrt-llm", False),
        (Answers(True, models_status=200, models=MODELS, owner="llamacpp"), "llamacpp", False),
        (Answers(True, models_status=404, triton=True), "triton", False),
        (Answers(True, ("tgi",), models_status=404, tgi=True), "tgi", True),
    ],
)
def test_an_engine_is_known_by_its_answers(answers: Answers, kind: str, shows: bool) -> None:
    (engine,), dcgm, notes = recognise([(AT, answers)])
    assert (engine.kind, engine.shows_metrics) == (kind, shows)
    assert engine.wants_key is (answers.models_status == 401)
    assert (dcgm, notes) == ("", [])


def test_a_dcgm_exporter_and_what_is_no_engine() -> None:
    engines, dcgm, notes = recognise(
        [
            (OTHER, Answers(True, page_of="dcgm")),
            (AT, Answers(True, models_status=200, models=MODELS, owner="openai")),
            (AT, Answers(True, models_status=404)),
            (AT, Answers()),
        ]
    )
    assert engines == []
    assert dcgm == "http://127.0.0.1:8002/metrics"
    assert len(notes) == 1, "of what is plainly something else nothing is said"
    assert "owned by openai" in notes[0]


def test_an_engines_port_that_does_not_answer_is_told_of() -> None:
    silent = Candidate("127.0.0.1", 8000, like_engine=True)
    _, _, (note,) = recognise([(silent, Answers())])
    assert "port 8000 belongs to an engine and does not answer HTTP" in note


def test_a_metrics_page_on_a_port_of_its_own_goes_to_its_engine() -> None:
    triton, page = (
        Answers(True, models_status=404, triton=True),
        Answers(True, ("triton",), models_status=404),
    )
    (engine,), _, notes = recognise([(OTHER, page), (AT, triton)])
    assert engine.metrics_url == "http://127.0.0.1:8002/metrics"
    assert engine.shows_metrics
    assert notes == []
    stranger = Candidate("127.0.0.1", 9000, pids=frozenset({7}))
    two, _, _ = recognise([(OTHER, page), (stranger, triton), (AT, triton)])
    assert [each.metrics_url != "" for each in two] == [False, True], "to the one of the same processes"
    none, _, (note,) = recognise([(OTHER, page)])
    assert none == []
    assert "no API of that engine" in note


def fake_proc(root: Path) -> Path:
    (root / "net").mkdir()
    (root / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 555 1 0 0\n"
    )
    process = root / "42"
    process.mkdir()
    (process / "environ").write_bytes(b"CUDA_VISIBLE_DEVICES=1,2\0PATH=/bin\0")
    (process / "cmdline").write_bytes(b"vllm\0serve\0m\0")
    (root / "sys" / "net" / "ipv4").mkdir(parents=True)
    (root / "sys" / "net" / "ipv4" / "ip_local_port_range").write_text("40000\t50000\n")
    return root


def test_what_the_host_tells_of_itself(tmp_path: Path) -> None:
    here = local.look(fake_proc(tmp_path))
    assert [each.port for each in here.listing.listeners] == [8000]
    assert here.ephemeral == (40000, 50000)
    assert here.environ(42)["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert here.command_line(42) == ("vllm", "serve", "m")
    assert here.environ(43) == {}


def test_a_host_that_tells_little(tmp_path: Path) -> None:
    here = local.look(tmp_path)
    assert here.listing.listeners == ()
    assert here.ephemeral == (32768, 60999)
