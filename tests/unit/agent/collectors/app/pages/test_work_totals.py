"""The tokens that an engine worked off, as its page counts them."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.metrics import MetricsSource
from headrace_agent.collectors.readings import Work
from headrace_agent.settings import EngineSettings
from tests.unit.agent.collectors.app.engine_pages import DATA, capture, vllm_page
from tests.unit.agent.collectors.app.pages.engines.reading import figures_of


def captures(kind: str) -> list[str]:
    return sorted(each.name for each in DATA.glob(f"{kind}*.prom"))


def page(*lines: str) -> bytes:
    return vllm_page() + ("\n".join(lines) + "\n").encode()


def test_every_rank_counts_and_what_the_cache_held_is_told_apart() -> None:
    raw = page(
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 900',
        'vllm:prompt_tokens_total{engine="1",model_name="m"} 100',
        'vllm:generation_tokens_total{engine="0",model_name="m"} 70',
        'vllm:generation_tokens_total{engine="1",model_name="m"} 7',
        'vllm:prefix_cache_hits_total{engine="0",model_name="m"} 300',
        'vllm:prefix_cache_hits_total{engine="1",model_name="m"} 30',
    )
    assert figures_of("vllm", raw).work == Work(1000, 330, 77)


def test_without_a_prefix_cache_nothing_was_found_there() -> None:
    raw = page("vllm:prompt_tokens_total 900", "vllm:generation_tokens_total 70")
    assert figures_of("vllm", raw).work == Work(900, 0, 70)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("vllm:prompt_tokens_total 900",),
        ("vllm:generation_tokens_total 70",),
        ("vllm:prompt_tokens_total NaN", "vllm:generation_tokens_total 70"),
        ("vllm:prompt_tokens_total -3", "vllm:generation_tokens_total 70"),
    ],
)
def test_half_a_count_is_none(lines: tuple[str, ...]) -> None:
    assert figures_of("vllm", page(*lines)).work is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("vllm", "vllm_0.32.0_busy.prom"),
        ("llamacpp", "llamacpp"),
        ("sglang", "sglang"),
    ],
)
def test_captured_pages_tell_it(kind: str, name: str) -> None:
    names = [name] if name.endswith(".prom") else captures(name)
    found = [work for each in names if (work := figures_of(kind, each).work) is not None]
    assert found
    assert all(work.prompt >= work.cached >= 0 and work.generated >= 0 for work in found)


def test_nobody_must_have_it() -> None:
    for kind in ("vllm", "sglang", "llamacpp"):
        assert not [name for name in figures_of(kind, capture(captures(kind)[0])).missing if "tokens" in name]


def test_an_old_page_tells_nothing() -> None:
    source = MetricsSource(EngineSettings(scrape_interval_s=0.5, ttft_window_s=30))
    source.take(Answer(200, page("vllm:prompt_tokens_total 9", "vllm:generation_tokens_total 1")), 0.0)
    assert source.work(1.0) == Work(9, 0, 1)
    assert source.work(60.0) is None
