"""Which kind of engine a page is of, and what is said where that is not what it should be."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.endpoints import ENDPOINTS
from headrace_agent.collectors.app.pages.kinds import ENGINES, detect
from headrace_agent.collectors.app.pages.reader import EnginePages
from headrace_agent.settings import CellSettings
from tests.unit.agent.collectors.app.engine_pages import DATA, capture, vllm_page

KINDS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "tensorrt-llm",
    "triton": "triton",
    "tgi": "tgi",
    "llamacpp": "llamacpp",
}
PAGES = sorted(path.name for path in DATA.glob("*.prom"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_its_engines(name: str) -> None:
    kind = KINDS[name.split("_")[0]]
    assert detect(capture(name)) == (kind,)
    pages = EnginePages()
    pages.read(capture(name))
    assert (pages.kind, pages.misfit) == (kind, "")


def test_every_kind_can_be_configured_and_has_a_page_and_endpoints() -> None:
    assert set(KINDS.values()) == set(ENGINES) == set(ENDPOINTS) - {""}
    for kind in ENGINES:
        assert CellSettings(id="c", url="http://127.0.0.1:1", kind=kind).kind == kind  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        (b"node_load1 0.5\n", ()),
        (b'x{a="vllm:y"} 1\n', ()),
        (b"my_vllm:num_requests_running 1\n", ()),
        (b"# HELP vllm:num_requests_running Requests.\n", ("vllm",)),
        (b"nv_gpu_utilization 0.5\n", ()),
        (b"nv_inference_request_success 1\nvllm:num_requests_running 1\n", ("vllm", "triton")),
        (b'{"requestStats": []}', ()),
        (b"", ()),
    ],
)
def test_families_tell_the_kind(page: bytes, kinds: tuple[str, ...]) -> None:
    assert detect(page) == kinds


def test_a_page_of_no_engine_says_what_to_do() -> None:
    pages = EnginePages()
    pages.read(b"node_load1 0.5\n")
    assert pages.engine is None
    assert pages.kind == ""
    assert "no family of an engine that is known" in pages.misfit
    assert "metrics_url" in pages.misfit


def test_a_page_of_another_kind_than_configured_says_so_and_is_not_read() -> None:
    pages = EnginePages("sglang")
    pages.read(vllm_page())
    assert pages.engine is None
    assert pages.kind == "sglang"
    assert pages.misfit == "the page is one of vLLM, and kind says sglang; set kind: vllm or auto"


def test_a_configured_kind_whose_page_has_nothing_of_it_says_what_may_be_off() -> None:
    pages = EnginePages("sglang")
    pages.read(b"process_start_time_seconds 1\n")
    assert "no sglang: family" in pages.misfit
    assert "--enable-metrics" in pages.misfit


def test_the_configured_kind_decides_where_a_page_is_of_two() -> None:
    both = b'nv_inference_request_success{model="m"} 1\nvllm:num_requests_running 1\n'
    for kind in ("vllm", "triton"):
        pages = EnginePages(kind)
        pages.read(both)
        assert pages.engine is ENGINES[kind]


def test_another_engine_on_the_same_port_is_found_out() -> None:
    pages = EnginePages()
    for name in ("vllm_0.32.0_after.prom", "sglang_0.5_busy.prom", "sglang_0.5_busy.prom"):
        pages.read(capture(name))
    assert pages.engine is ENGINES["sglang"]


def test_a_page_that_lost_its_families_leaves_the_kind_known() -> None:
    """A proxy's answer in between is no change of engine."""
    pages = EnginePages()
    pages.read(vllm_page())
    pages.read(b"up 1\n")
    assert (pages.engine, pages.kind) == (None, "vllm")
    pages.read(vllm_page())
    assert pages.misfit == ""


def test_an_unchanged_page_is_the_page_before() -> None:
    """What follows costs little where nothing changed."""
    pages = EnginePages()
    assert pages.read(vllm_page()) is pages.read(vllm_page())
