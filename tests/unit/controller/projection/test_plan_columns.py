"""Endpoints in columns are read like rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.projection.plan import Cells, Endpoint, Endpoints

rows = st.lists(
    st.builds(Endpoint, st.text(max_size=3), st.just("10.0.0.1"), st.integers(1, 65535), st.integers(1, 200))
)


@given(rows)
def test_columns_give_back_the_rows_they_were_made_of(endpoints: list[Endpoint]) -> None:
    columns = Endpoints.of(endpoints)
    assert list(columns) == endpoints
    assert len(columns) == len(endpoints)
    assert [columns[at] for at in range(len(endpoints))] == endpoints
    assert columns[1:] == endpoints[1:]
    assert columns == Endpoints.of(iter(endpoints))


def test_other_weights_are_other_endpoints() -> None:
    cells = Cells(["a"], ["10.0.0.1"], [80])
    assert Endpoints(cells, [1]) != Endpoints(cells, [2])
    assert Endpoints(cells, [1]) != [Endpoint("a", "10.0.0.1", 80, 1)]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Endpoints(cells, [1]))
