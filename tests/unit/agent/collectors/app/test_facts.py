"""Model lists as engines write them, and as they should not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.facts import parse_models
from headrace_agent.collectors.app.health.warmup import choose_model
from headrace_agent.collectors.app.http.errors import AnswerError
from headrace_agent.collectors.readings import Model

BASE = {"id": "tiny", "root": "models/tiny", "parent": None, "max_model_len": 4096}


def test_base_and_adapter() -> None:
    adapter = {"id": "sql", "root": "adapters/sql", "parent": "tiny", "max_model_len": None}
    assert parse_models({"data": [BASE, adapter]}) == (Model("tiny", 4096), Model("sql", None, "tiny"))


def test_adapter_that_names_its_base_as_root() -> None:
    adapter = {"id": "sql", "root": "tiny", "max_model_len": None}
    assert parse_models({"data": [BASE, adapter]})[1] == Model("sql", None, "tiny")


@pytest.mark.parametrize("length", [0, -1, True, "4096", 4096.5, 2**40, None])
def test_impossible_lengths_are_absent(length: Any) -> None:
    assert parse_models({"data": [{"id": "m", "max_model_len": length}]}) == (Model("m"),)


@pytest.mark.parametrize("body", [None, [], {}, {"data": None}, {"data": {"id": "m"}}, "models"])
def test_no_list(body: Any) -> None:
    with pytest.raises(AnswerError, match="no list of models"):
        parse_models(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "root", "parent", "max_model_len", "data"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.builds(lambda entries: {"data": entries}, st.lists(JSON, max_size=4)))
def test_any_json(body: dict[str, Any]) -> None:
    for model in parse_models(body):
        assert model.id
        assert model.max_model_len is None or model.max_model_len > 0


def test_warm_up_asks_no_adapter() -> None:
    assert choose_model((Model("sql", None, "tiny"), Model("tiny", 4096))) == "tiny"
    with pytest.raises(AnswerError, match="no model"):
        choose_model(())
