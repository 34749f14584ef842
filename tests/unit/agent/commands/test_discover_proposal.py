"""Which GPUs are under which engine, and the config that is proposed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.hardware.dcgm import PREFIX, WANTED, read_gpus
from headrace_agent.collectors.hardware.page import FieldReader
from headrace_agent.collectors.readings import Model
from headrace_agent.commands.discover.assign import BY_ELIMINATION, BY_ENVIRON, BY_PROCESS, assign
from headrace_agent.commands.discover.found import (
    Candidate,
    Engine,
    GpuInstance,
    GpuSeen,
    Host,
    Placed,
)
from headrace_agent.commands.discover.given import read_given
from headrace_agent.commands.discover.gpus import fold
from headrace_agent.commands.discover.propose import node_name, propose
from headrace_agent.commands.errors import CommandError
from headrace_agent.commands.placeholders import CONTROLLER, SITE, unfilled
from headrace_agent.settings import MAX_CONTROLLERS, AgentSettings
from headrace_shared.config import parse

DCGM_DATA = Path(__file__).parents[3] / "data" / "dcgm_pages"
MODELS = (Model("llama", 8192),)


def engine(
    port: int = 8000, *pids: int, kind: str = "vllm", listens: tuple[str, ...] = ("0.0.0.0",)
) -> Engine:
    at = Candidate("127.0.0.1", port, listens)
    return Engine(at, kind, "0.10.2", MODELS, shows_metrics=True, pids=frozenset(pids))


def gpu(index: int, *pids: int, instances: tuple[GpuInstance, ...] = ()) -> GpuSeen:
    return GpuSeen(index, f"GPU-{index}", "H100", 81559, frozenset(pids), instances)


def no_environ(pid: int) -> dict[str, str]:
    return {}


def placed_by(
    engines: list[Engine], gpus: list[GpuSeen], environ: dict[int, dict[str, str]] | None = None
) -> list[tuple[tuple[str, ...], str]]:
    found = assign(engines, gpus, lambda pid: (environ or {}).get(pid, {}))
    return [(each.gpus, each.basis) for each in found]


def test_tensor_parallel_over_two_and_another_engine_on_a_third() -> None:
    found = placed_by([engine(8000, 1, 2, 3), engine(8001, 9)], [gpu(0, 2), gpu(1, 3), gpu(2, 9), gpu(3)])
    assert found == [(("GPU-0", "GPU-1"), BY_PROCESS), (("GPU-2",), BY_PROCESS)]


def test_two_engines_on_one_gpu() -> None:
    assert placed_by([engine(8000, 1), engine(8001, 2)], [gpu(0, 1, 2)]) == [(("GPU-0",), BY_PROCESS)] * 2


def test_engines_on_mig_slices() -> None:
    slices = (GpuInstance("3", ("MIG-a",), frozenset({1})), GpuInstance("5", ("MIG-b",), frozenset({2})))
    found = placed_by([engine(8000, 1), engine(8001, 2)], [gpu(0, 1, 2, instances=slices)])
    assert [gpus for gpus, _ in found] == [("GPU-0:3",), ("GPU-0:5",)]


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("1", ("GPU-1",)),
        ("1,0", ("GPU-1", "GPU-0")),
        ("GPU-1", ("GPU-1",)),
        ("MIG-a", ("GPU-2:3",)),
        ("all", ()),
        ("7", ()),
        ("0,7", ()),
        ("2", ()),  # an index names no slice
        ("", ()),
    ],
)
def test_without_processes_the_environment_tells(visible: str, gpus: tuple[str, ...]) -> None:
    here = [gpu(0), gpu(1), gpu(2, instances=(GpuInstance("3", ("MIG-a",)),))]
    found = placed_by([engine(8000, 1)], here, {1: {"CUDA_VISIBLE_DEVICES": visible}})
    assert found == [(gpus, BY_ENVIRON if gpus else "")]


def test_what_nothing_tells_is_left_open_unless_there_is_only_one_way() -> None:
    assert placed_by([engine(8000, 1)], [gpu(0)]) == [(("GPU-0",), BY_ELIMINATION)]
    assert placed_by([engine(8000, 1)], [gpu(0), gpu(1)]) == [((), "")]
    assert placed_by([engine(8000), engine(8001)], [gpu(0)]) == [((), "")] * 2
    sliced = gpu(0, instances=(GpuInstance("3"),))
    assert placed_by([engine(8000)], [sliced]) == [((), "")]


def test_an_exporters_page_tells_the_gpus_and_their_instances() -> None:
    raw = (DCGM_DATA / "dcgm_a100_mig.prom").read_bytes()
    (found,) = fold(read_gpus(FieldReader(PREFIX, WANTED).read(raw).samples))
    assert found.index == 0
    assert [each.instance for each in found.instances] == ["13"]
    assert found.pids is None


def load(host: Host) -> AgentSettings:
    return parse(propose(host), AgentSettings)


def host(*placed: Placed, **more: object) -> Host:
    fields: dict[str, object] = {"node": "gpu-1", "address": "10.0.1.7", "engines": placed}
    return Host(**(fields | more))  # type: ignore[arg-type]


def test_a_proposal_is_a_config_that_only_wants_site_and_controllers() -> None:
    two = host(
        Placed(engine(8000), ("GPU-0", "GPU-1"), BY_PROCESS),
        Placed(engine(8001), ("GPU-2:3",), BY_PROCESS),
        dcgm_url="http://127.0.0.1:9400/metrics",
    )
    settings = load(two)
    assert (settings.node, settings.site) == ("gpu-1", SITE)
    assert settings.controllers[0].address == CONTROLLER
    assert settings.hardware.dcgm_url == "http://127.0.0.1:9400/metrics"
    assert str(settings.metrics_listen) == "127.0.0.1:9464"
    first, second = settings.cells
    assert (first.id, first.url, str(first.address)) == (
        "gpu-1-8000",
        "http://127.0.0.1:8000",
        "10.0.1.7:8000",
    )
    assert first.gpus == ("GPU-0", "GPU-1")
    assert second.gpus == ("GPU-2:3",)
    text = propose(two)
    assert "vllm 0.10.2 serves llama (8192 tokens)" in text
    assert text.count("FILL IN:") == 2


def test_what_the_operator_gives_is_not_left_to_fill_in() -> None:
    found = host(Placed(engine(8000), ("GPU-0",), BY_PROCESS))
    given = read_given("on", ["10.0.0.5:18000", "[fd00::5]:18000"])
    text = propose(found, given)
    settings = parse(text, AgentSettings)
    assert settings.site == "on", "not the true that YAML takes the word for"
    assert tuple(each.address for each in settings.controllers) == given.controllers
    assert "FILL IN" not in text
    assert list(unfilled(settings)) == []
    assert list(unfilled(parse(propose(found, read_given("berlin", [])), AgentSettings))) == [
        "controllers[0].address"
    ]


def test_more_controllers_than_a_config_takes_are_refused() -> None:
    texts = [f"10.0.0.{each}:18000" for each in range(MAX_CONTROLLERS + 1)]
    with pytest.raises(CommandError, match="give 16 at most"):
        read_given(None, texts)
    load_many = propose(host(Placed(engine(8000))), read_given(None, texts[1:]))
    assert len(parse(load_many, AgentSettings).controllers) == MAX_CONTROLLERS


@pytest.mark.parametrize(
    ("listens", "address", "advertised", "words"),
    [
        (("0.0.0.0",), "10.0.1.7", "10.0.1.7:8000", "where gateways reach it"),
        (("::",), "2001:db8::7", "[2001:db8::7]:8000", "where gateways reach it"),
        (("10.9.9.9",), "10.0.1.7", "10.9.9.9:8000", "where gateways reach it"),
        (("127.0.0.1", "10.9.9.9"), "10.0.1.7", "10.9.9.9:8000", "where gateways reach it"),
        (("127.0.0.1",), "10.0.1.7", "127.0.0.1:8000", "listens on loopback only"),
        (("0.0.0.0",), "", "127.0.0.1:8000", "# advertise:   # FILL IN"),
        ((), "10.0.1.7", "10.0.1.7:8000", "where gateways reach it"),
    ],
)
def test_where_gateways_reach_an_engine(
    listens: tuple[str, ...], address: str, advertised: str, words: str
) -> None:
    found = host(Placed(engine(8000, listens=listens)), address=address)
    assert str(load(found).cells[0].address) == advertised
    assert words in propose(found)


def test_what_cannot_be_told_is_a_comment() -> None:
    bare = Engine(Candidate("127.0.0.1", 8000, ("0.0.0.0",)), "sglang", wants_key=True)
    text = propose(host(Placed(bare), gpus=(gpu(0), gpu(1)), notes=("port 9: x\nnode: evil",)))
    settings = parse(text, AgentSettings)
    assert settings.cells[0].kind == "sglang", "its page does not tell it"
    assert settings.cells[0].gpus == ()
    for words in (
        "# gpus: []",
        "# api_key_file:",
        "it shows no metrics",
        "GPU not placed: GPU-1",
        "#   dcgm_url",
    ):
        assert words in text
    assert settings.node == "gpu-1", "a note stays a comment"


def test_a_page_elsewhere_and_a_shared_gpu() -> None:
    triton = Engine(
        Candidate("127.0.0.1", 8000, ("0.0.0.0",)),
        "triton",
        shows_metrics=True,
        metrics_url="http://127.0.0.1:8002/metrics",
    )
    both = host(Placed(triton, ("GPU-0",), BY_PROCESS), Placed(engine(8001), ("GPU-0",), BY_PROCESS))
    assert load(both).cells[0].metrics_url == "http://127.0.0.1:8002/metrics"
    assert propose(both).count("another engine runs there too") == 2


anything = st.text(max_size=40)


@given(anything, anything, anything, anything, st.lists(anything, max_size=3))
def test_whatever_others_call_themselves_the_proposal_loads(
    name: str, version: str, model: str, gpu_name: str, notes: list[str]
) -> None:
    wild = Engine(
        Candidate("127.0.0.1", 8000, ("0.0.0.0",)), "vllm", version, (Model(model),), shows_metrics=True
    )
    found = Host(
        node_name(name),
        "10.0.1.7",
        (Placed(wild, ("GPU-0",), BY_PROCESS),),
        (GpuSeen(1, "GPU-1", gpu_name),),
        "",
        tuple(notes),
    )
    settings = load(found)
    assert len(settings.cells) == 1
    assert settings.cells[0].gpus == ("GPU-0",)


@pytest.mark.parametrize("word", ["yes", "No", "null", "0x10", "1e5", "12:30", "2001-01-01", "~", "on"])
def test_a_name_that_yaml_would_take_for_something_else_stays_a_name(word: str) -> None:
    found = host(Placed(engine(8000), (word,), BY_PROCESS), node=node_name(word))
    assert load(found).node == node_name(word)
    assert load(found).cells[0].gpus == (word,)
