"""Whatever stands on a page of whatever engine: no crash, and no figure that cannot be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.kinds import AUTO, ENGINES
from headrace_agent.collectors.app.pages.metrics import MetricsSource
from headrace_agent.collectors.app.pages.preview import SIGNALS, preview
from headrace_agent.collectors.exposition import PageError
from headrace_agent.settings import EngineSettings
from tests.unit.agent.collectors.app.engine_pages import capture

SETTINGS = EngineSettings()
SMALL = {
    "vllm": "vllm_0.6.6_synthetic.prom",
    "sglang": "sglang_0.5_dp_attention.prom",
    "tensorrt-llm": "trtllm_1.2_busy.prom",
    "triton": "triton_24.12_busy.prom",
    "tgi": "tgi_3.0_busy.prom",
    "llamacpp": "llamacpp_b4000_busy.prom",
}
VALUES = [
    "NaN",
    "-1",
    "+Inf",
    "-Inf",
    "0",
    "1e308",
    "1.7e308",
    "9e15",
    "42",
    "",
    "x",
    "1_0",
    "0.5",
    "9007199254740993",
]

values = st.sampled_from(VALUES)
mutations = st.lists(
    st.tuples(st.sampled_from(["value", "drop", "double", "cut", "garble"]), st.integers(0, 400), values),
    max_size=12,
)


def mutate(raw: bytes, changes: list[tuple[str, int, str]]) -> bytes:
    """The page with some of its lines changed."""
    lines = raw.decode().splitlines()
    for how, where, value in changes:
        at = where % max(len(lines), 1)
        match how:
            case "value":
                lines[at] = f"{lines[at].rpartition(' ')[0]} {value}"
            case "drop":
                lines = lines[:at] + lines[at + 1 :] or ["#"]
            case "double":
                lines.insert(at, lines[at])
            case "cut":
                lines[at] = lines[at][: len(lines[at]) // 2]
            case "garble":
                lines[at] = lines[at].replace('"', "", 1).replace("{", "{{", 1)
    return ("\n".join(lines) + "\n").encode()


def check(source: MetricsSource, now: float) -> None:
    """Every figure that is given out can be."""
    for name, value in source.signals(now).items():
        assert math.isfinite(value), name
        assert value >= 0, name
        if name in ("error_rate", "kv_fill"):
            assert value <= 1, name
    in_flight = source.in_flight(now)
    assert in_flight is None or in_flight >= 0
    for count in (source.totals and (source.totals.ok, source.totals.client_errors)) or ():
        assert count is None or count >= 0
    assert source.sources(now).keys() == source.signals(now).keys()


@pytest.mark.parametrize("kind", ENGINES)
@given(st.lists(mutations, min_size=1, max_size=4), st.booleans())
@settings(max_examples=40)
def test_mutated_pages(kind: str, pages: list[list[tuple[str, int, str]]], configured: bool) -> None:
    source = MetricsSource(SETTINGS, kind if configured else AUTO)
    whole = capture(SMALL[kind])
    for step, changes in enumerate(pages):
        source.take(Answer(200, mutate(whole, changes)), step / 2)
        check(source, step / 2)
    source.take(Answer(200, whole), len(pages) / 2)
    check(source, len(pages) / 2)
    assert source.kind == kind


NAMES = sorted({name for engine in ENGINES.values() for name in engine.wanted.samples})
LABELS = [
    "",
    '{engine="0"}',
    '{tp_rank="1",dp_rank="0"}',
    '{le="+Inf"}',
    '{le="x"}',
    '{request_type="waiting"}',
    '{err="z"}',
]
lines = st.builds(
    lambda name, labels, value: f"{name}{labels} {value}",
    st.sampled_from(NAMES),
    st.sampled_from(LABELS),
    values,
)


@given(st.lists(lines, max_size=20), st.lists(lines, max_size=20), st.sampled_from([AUTO, *ENGINES]))
def test_pages_of_any_families(first: list[str], later: list[str], kind: str) -> None:
    shown = preview("\n".join([*first, ""]).encode(), "\n".join([*later, ""]).encode(), 1.0, kind)
    assert shown.signals.keys() == set(SIGNALS)
    for name, value in shown.signals.items():
        if value is not None:
            assert math.isfinite(value)
            assert 0 <= value <= (1 if name in ("error_rate", "kv_fill") else math.inf)
            assert shown.source[name]


@given(st.binary(max_size=400), st.sampled_from([AUTO, *ENGINES]))
def test_any_bytes(raw: bytes, kind: str) -> None:
    try:
        shown = preview(raw, kind=kind)
    except PageError:
        return
    assert shown.warnings, "what has no figures has a reason"
