"""What simulated agents say is what real ones would."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.pages.histogram import quantile as agents_own
from headrace_lab.sim.agents import BOUNDS, quantile


@given(
    st.lists(st.integers(0, 50), min_size=len(BOUNDS), max_size=len(BOUNDS)),
    st.sampled_from([0.5, 0.95, 0.99]),
)
def test_the_quantile_is_the_agents(buckets: list[int], q: float) -> None:
    counts = tuple(map(float, accumulate(buckets)))
    mine, own = quantile(q, counts), agents_own(q, dict(zip(BOUNDS, counts, strict=True)))
    assert (mine is None) == (own is None)
    if mine is not None:
        assert mine == pytest.approx(own)


def test_no_samples_have_no_quantile() -> None:
    assert quantile(0.95, ()) is None
    assert quantile(0.95, (0.0,) * len(BOUNDS)) is None
