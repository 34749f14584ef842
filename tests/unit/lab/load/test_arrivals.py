"""The schedule of a load: fixed by its seed, open-loop, within bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_lab.load.arrivals import Mix, schedule
from headrace_lab.load.prompts import prompt


@given(rps=st.floats(0.5, 50), seconds=st.floats(0.5, 60), seed=st.integers(0, 2**32), share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_schedule_is_ordered_bounded_and_repeatable(
    rps: float, seconds: float, seed: int, share: float
) -> None:
    mix = Mix(long_share=share)
    planned = schedule(rps=rps, seconds=seconds, seed=seed, mix=mix)
    times = [a.at_s for a in planned]
    assert times == sorted(times)
    assert all(0 <= t < seconds for t in times)
    assert [a.id for a in planned] == list(range(len(planned)))
    assert sum(a.kind == "long" for a in planned) == round(share * len(planned))
    assert planned == schedule(rps=rps, seconds=seconds, seed=seed, mix=mix)


def test_sizes_follow_the_kind() -> None:
    mix = Mix((10, 20), (100, 120), 0.5, (3, 5))
    for arrival in schedule(rps=100, seconds=5, seed=3, mix=mix):
        low, high = mix.long_tokens if arrival.kind == "long" else mix.short_tokens
        assert low <= arrival.prompt_tokens <= high
        assert 3 <= arrival.max_tokens <= 5


def test_poisson_keeps_the_rate_and_varies_the_gaps() -> None:
    planned = schedule(rps=50, seconds=200, seed=1)
    assert len(planned) == pytest.approx(10_000, rel=0.05)
    gaps = [b.at_s - a.at_s for a, b in pairwise(planned)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5
    assert spread == pytest.approx(mean, rel=0.1)


def test_constant_spacing() -> None:
    planned = schedule(rps=4, seconds=2, seed=1, process="constant")
    assert [a.at_s for a in planned] == [0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


def test_another_seed_is_another_load() -> None:
    assert schedule(rps=10, seconds=10, seed=1) != schedule(rps=10, seconds=10, seed=2)


@pytest.mark.parametrize(("rps", "seconds"), [(0, 10), (-1, 10), (10, 0), (1e6, 1), (10_000, 86_400)])
def test_out_of_bounds_is_refused(rps: float, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"rps|requests"):
        schedule(rps=rps, seconds=seconds, seed=1)


def test_prompts_have_the_wanted_words_and_share_no_prefix() -> None:
    """A shared prefix would be served from an engine's cache and flatter its TTFT."""
    texts = {prompt(200, seed) for seed in range(50)}
    assert all(len(text.split()) == 200 for text in texts)
    assert len(texts) == 50
    assert len({text[:60] for text in texts}) > 45
    assert prompt(200, 7) == prompt(200, 7)
