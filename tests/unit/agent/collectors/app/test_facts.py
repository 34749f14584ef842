"""Model lists as engines write them, and as they should not."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.facts import owner_of, parse_info, parse_models, parse_repository
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


@pytest.mark.parametrize(
    ("owners", "kind"),
    [
        (["vllm"], "vllm"),
        (["sglang", "sglang"], "sglang"),
        (["llamacpp"], "llamacpp"),
        (["tensorrt_llm"], "tensorrt-llm"),
        (["acme"], ""),
        (["vllm", "sglang"], ""),
        ([None], ""),
        ([], ""),
    ],
)
def test_what_a_list_says_of_its_engine(owners: list[str | None], kind: str) -> None:
    assert owner_of({"data": [{"id": "m", "owned_by": owner} for owner in owners]}) == kind


def test_tgi_has_one_model() -> None:
    body = {"model_id": "org/model", "max_total_tokens": 8192, "version": "3.0.0"}
    assert parse_info(body) == (Model("org/model", 8192),)


@pytest.mark.parametrize("body", [None, [], {}, {"model_id": 5}])
def test_tgi_without_a_model(body: Any) -> None:
    with pytest.raises(AnswerError, match="no model_id"):
        parse_info(body)


def test_triton_lists_what_is_ready_once() -> None:
    body = [
        {"name": "ensemble", "version": "1", "state": "READY"},
        {"name": "ensemble", "version": "2", "state": "READY"},
        {"name": "old", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": 5},
        "x",
    ]
    assert parse_repository(body) == (Model("ensemble"),)
    with pytest.raises(AnswerError, match="no list of models"):
        parse_repository({"models": []})


@given(JSON)
def test_any_json_of_the_other_kinds(body: Any) -> None:
    for parse in (parse_info, parse_repository, owner_of):
        with suppress(AnswerError):
            parse(body)


def test_warm_up_asks_what_clients_ask() -> None:
    """Behind an ensemble the other models have other inputs."""
    models = [Model(name) for name in ("preprocessing", "tensorrt_llm", "ensemble", "postprocessing")]
    assert choose_model(models) == "ensemble"


def test_warm_up_asks_no_adapter() -> None:
    assert choose_model((Model("sql", None, "tiny"), Model("tiny", 4096))) == "tiny"
    with pytest.raises(AnswerError, match="no model"):
        choose_model(())
