"""The classes and the traces: distributions, rates, repeatability."""

from __future__ import annotations

from collections import defaultdict
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_lab.load.arrivals import Arrival
from headrace_lab.load.classes import generate
from headrace_lab.load.prompts import prefixed, sized
from headrace_lab.load.traces import FOLDER, read_trace
from headrace_lab.scenarios import TraceLoad, packaged

LOADS = packaged().loads
CLASSES = packaged().matrix_loads
TRACES = [
    name
    for name in packaged().matrix_traces
    if isinstance(load := packaged().load(name), TraceLoad) and load.arrivals == "own"
]


def made(name: str, rps: float = 10, seconds: float = 300, seed: int = 5, most: int = 32768) -> list[Arrival]:
    return generate(LOADS[name], rps=rps, seconds=seconds, seed=seed, most_tokens=most)


@given(
    name=st.sampled_from(sorted(LOADS)),
    rps=st.floats(0.5, 40),
    seconds=st.floats(1, 60),
    seed=st.integers(0, 2**32),
    most=st.integers(2, 40_000),
)
@settings(max_examples=80, deadline=None)
def test_any_load_is_ordered_bounded_and_repeatable(
    name: str, rps: float, seconds: float, seed: int, most: int
) -> None:
    arrivals = made(name, rps, seconds, seed, most)
    times = [a.at_s for a in arrivals]
    assert times == sorted(times)
    assert all(0 <= t < seconds for t in times)
    assert [a.id for a in arrivals] == list(range(len(arrivals)))
    for each in arrivals:
        assert each.prompt_tokens >= 1
        assert each.max_tokens >= 1
        assert each.prompt_tokens + each.max_tokens <= max(most, 2)
        if each.prefix:
            assert len(each.prefix) <= -(-each.prompt_tokens // each.prefix_block)
    assert arrivals == made(name, rps, seconds, seed, most)


@pytest.mark.parametrize(
    ("name", "mean", "deviation", "output"),
    [
        ("baseline_mixed", 512, 200, 128),
        ("code_heavy", 1024, 512, 192),
        ("rag_multidoc", 4000, 800, 128),
        ("long_context", 8000, 1500, 128),
        ("very_long", 16000, 3000, 128),
    ],
)
def test_prompts_have_the_stated_mean_and_spread(
    name: str, mean: float, deviation: float, output: int
) -> None:
    prompts = np.array([a.prompt_tokens for a in made(name)])
    assert prompts.mean() == pytest.approx(mean, rel=0.05)
    assert prompts.std() == pytest.approx(deviation, rel=0.12)
    assert {a.max_tokens for a in made(name)} == {output}


@pytest.mark.parametrize("name", [*CLASSES, *TRACES])
def test_the_rate_is_the_one_asked_for(name: str) -> None:
    arrivals = [a for a in made(name, rps=20, seconds=200) if a.kind != "spike"]
    assert len(arrivals) == pytest.approx(4000, rel=0.06)
    first_half = sum(a.at_s < 100 for a in arrivals)
    if name in CLASSES:
        assert first_half == pytest.approx(2000, rel=0.1)


def test_spikes_come_at_once_and_on_time() -> None:
    spikes = defaultdict(int)
    for each in made("adversarial_spike", seconds=120):
        if each.kind == "spike":
            spikes[each.at_s] += 1
    assert dict(spikes) == {15.0: 50, 45.0: 50, 75.0: 50, 105.0: 50}


def test_a_conversation_grows_evenly_on_what_was_said() -> None:
    sessions = defaultdict(list)
    for each in made("multiturn", rps=20):
        sessions[each.session].append(each)
    whole = [turns for turns in sessions.values() if [t.turn for t in turns] == list(range(8))]
    assert len(whole) > 50
    for turns in whole:
        assert turns[-1].prompt_tokens == 16384
        gaps = [b.prompt_tokens - a.prompt_tokens for a, b in pairwise(turns)]
        assert max(gaps) - min(gaps) <= 2
        for before, after in pairwise(turns):
            assert after.prefix[: len(before.prefix)] == before.prefix
    blocks = [set(turns[-1].prefix) for turns in whole]
    assert not blocks[0] & blocks[1]


def test_a_conversation_load_begins_in_its_steady_state() -> None:
    """A load whose sessions all began at 0 would bring short prompts first and long ones later."""
    arrivals = made("multiturn", rps=20, seconds=60)
    early = [a.prompt_tokens for a in arrivals if a.at_s < 15]
    late = [a.prompt_tokens for a in arrivals if a.at_s >= 45]
    assert np.mean(early) == pytest.approx(np.mean(late), rel=0.15)


def test_shapes_change_within_a_session() -> None:
    sessions = defaultdict(list)
    for each in made("rapid_shift", rps=20):
        sessions[each.session].append(each)
    whole = [turns for turns in sessions.values() if len(turns) == 3]
    assert len(whole) > 100
    assert np.mean([turns[0].prompt_tokens for turns in whole]) == pytest.approx(256, rel=0.1)
    assert np.mean([turns[2].prompt_tokens for turns in whole]) == pytest.approx(1792, rel=0.1)
    assert {turns[0].max_tokens for turns in whole} == {256}


def test_three_in_ten_are_long_for_the_capability_scenario() -> None:
    arrivals = made("mixed_30_long")
    over = [a for a in arrivals if a.prompt_tokens + a.max_tokens > 1024]
    assert len(over) == pytest.approx(0.3 * len(arrivals), abs=1)
    assert all(a.kind == "long" for a in over)


@pytest.mark.parametrize(
    ("name", "requests"),
    [("azure_conv", 19366), ("azure_code", 8819), ("mooncake", 12031)],
)
def test_traces_are_whole_and_attributed(name: str, requests: int) -> None:
    load = LOADS[name]
    assert load.kind == "trace"
    assert len(read_trace(load.file, load.format)) == requests
    note = files("headrace_lab.load").joinpath(FOLDER, "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert load.file in note
    assert "CC-BY 4.0" in note
    assert "Apache-2.0" in note


def test_traces_have_the_published_lengths() -> None:
    conv = np.array([r.prompt_tokens for r in read_trace("azure_llm_2023_conv.csv.gz", "azure")])
    assert conv.mean() == pytest.approx(1155, rel=0.01)
    assert np.quantile(conv, 0.95) == pytest.approx(4083, rel=0.02)
    code = np.array([r.prompt_tokens for r in read_trace("azure_llm_2023_code.csv.gz", "azure")])
    assert code.mean() == pytest.approx(2048, rel=0.01)


@pytest.mark.parametrize("name", TRACES)
def test_rescaling_keeps_the_proportions_of_the_gaps(name: str) -> None:
    slow = made(name, rps=5, seconds=100)
    fast = made(name, rps=50, seconds=10)
    assert len(slow) == len(fast) == 500
    assert [a.at_s for a in slow] == pytest.approx([10 * a.at_s for a in fast])
    gaps = [b.at_s - a.at_s for a, b in pairwise(slow)]
    assert np.std(gaps) > 0.5 * np.mean(gaps)


def test_a_traces_sizes_can_come_at_times_of_a_poisson_process() -> None:
    own, poisson = made("azure_conv"), made("azure_conv_poisson")
    count = min(len(own), len(poisson))
    assert [a.prompt_tokens for a in own[:count]] == [a.prompt_tokens for a in poisson[:count]]
    gaps = np.diff([a.at_s for a in poisson])
    assert gaps.mean() == pytest.approx(0.1, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)
    assert np.diff([a.at_s for a in made("azure_code")]).std() > 1.5 * gaps.std(), "its own come in bursts"


def test_a_trace_gone_through_twice_shares_nothing_by_repetition() -> None:
    arrivals = made("mooncake", rps=100, seconds=200, most=200_000)
    assert len(arrivals) == 20_000
    for once, again in zip(arrivals, arrivals[12_031:], strict=False):
        assert once.prompt_tokens == again.prompt_tokens
        assert not set(once.prefix) & set(again.prefix)


def test_prompts_with_the_same_blocks_begin_with_the_same_bytes() -> None:
    for size in (0.0, 4.0):
        one = prefixed((1, 2), 64, 150, seed=1, bytes_per_token=size)
        two = prefixed((1, 2, 3), 64, 200, seed=2, bytes_per_token=size)
        other = prefixed((9, 2), 64, 150, seed=1, bytes_per_token=size)
        shared = len(prefixed((1, 2), 64, 128, seed=0, bytes_per_token=size))
        assert one[:shared] == two[:shared]
        assert one != two
        assert one[:20] != other[:20]


@given(tokens=st.integers(1, 20_000), seed=st.integers(0, 2**40), size=st.floats(0.5, 8))
@settings(max_examples=60, deadline=None)
def test_sized_text_has_the_size(tokens: int, seed: int, size: float) -> None:
    text = sized(tokens, seed, size)
    assert len(text.encode()) == max(1, round(tokens * size))
    assert text == sized(tokens, seed, size)
