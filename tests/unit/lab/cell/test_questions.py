"""Bodies of completion requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.cell.errors import ApiError, too_long
from headrace_lab.cell.questions import IMAGE_TOKENS, Question, read_chat, read_completion
from headrace_lab.cell.versions import read_dialect


def completion(**body: Any) -> Question:
    return read_completion(json.dumps(body).encode(), 4.0)


def chat(**body: Any) -> Question:
    return read_chat(json.dumps(body).encode(), 4.0)


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("", (1,)),
        ("abcd", (1,)),
        ("abcde", (2,)),
        ("äöü", (2,)),
        ([7, 8, 9], (3,)),
        (["abcd", "abcdefgh"], (1, 2)),
        ([[1, 2], [3]], (2, 1)),
        ("\ud800", (1,)),
    ],
)
def test_prompts_are_counted_by_bytes_or_by_ids(prompt: Any, tokens: tuple[int, ...]) -> None:
    assert completion(prompt=prompt).prompts == tokens


def test_defaults_and_options() -> None:
    plain = completion(prompt="a")
    assert (plain.max_tokens, plain.stream, plain.n, plain.model) == (16, False, 1, "")
    full = completion(
        prompt=["a", "b"],
        model="m",
        max_tokens=5,
        n=2,
        stream=True,
        ignore_eos=True,
        stream_options={"include_usage": True},
        temperature=0.7,
    )
    assert full.choices == [1, 1, 1, 1]
    assert (full.model, full.max_tokens, full.stream, full.ignore_eos, full.include_usage) == (
        "m",
        5,
        True,
        True,
        True,
    )
    assert completion(prompt="a", max_tokens=None, stream=None).max_tokens == 16


def test_chat_counts_text_roles_images_and_tools() -> None:
    message = {"role": "user", "content": "x" * 36}
    assert chat(messages=[message]).prompts == (10,)
    parts = [{"type": "text", "text": "x" * 36}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert chat(messages=[{"role": "user", "content": parts}]).prompts == (10 + IMAGE_TOKENS,)
    assert chat(messages=[message], tools=[{"type": "function"}]).prompts[0] > 10
    assert chat(messages=[message], max_completion_tokens=3, max_tokens=9).max_tokens == 3


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": "many"}, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens"),
        ({"prompt": "a", "stream": "yes"}, "stream"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "n": 1000}, "n"),
        ({"prompt": "a", "model": 3}, "model"),
        ({"prompt": "a", "stream_options": []}, "stream_options"),
    ],
)
def test_bad_fields_are_refused_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as error:
        completion(**body)
    assert (error.value.code, error.value.param) == (400, param)


@pytest.mark.parametrize(
    "messages", [None, [], "hi", [1], [{"content": "a"}], [{"role": "user", "content": 5}]]
)
def test_bad_messages_are_refused(messages: Any) -> None:
    with pytest.raises(ApiError) as error:
        chat(messages=messages)
    assert error.value.param == "messages"


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_body_is_a_question_or_an_api_error(raw: bytes) -> None:
    for read in (read_completion, read_chat):
        try:
            question = read(raw, 4.0)
        except ApiError:
            continue
        assert min(question.prompts) >= 1


def test_a_deeply_nested_body_is_refused() -> None:
    with pytest.raises(ApiError):
        read_completion(b"[" * 100_000, 4.0)


def test_error_bodies_have_the_versions_shape() -> None:
    error = too_long(1000, 100, 1024, read_dialect("0.32.0"))
    body = error.body(read_dialect("0.32.0"))
    assert set(body) == {"error"}
    assert body["error"]["type"] == "BadRequestError"
    assert body["error"]["code"] == 400
    assert "maximum context length is 1024 tokens" in body["error"]["message"]
    old = too_long(1000, 100, 1024, read_dialect("0.6.6")).body(read_dialect("0.6.6"))
    assert (old["object"], old["code"]) == ("error", 400)
    assert "maximum context length is 1024 tokens" in old["message"]


def test_texts_that_begin_alike_have_the_same_leading_blocks() -> None:
    """What a prefix cache reuses must follow from the text, as in an engine."""

    def prefix(text: str) -> tuple[int, ...]:
        return read_completion(json.dumps({"prompt": text}).encode(), 4.0, 16).prefix(0)

    common = "x" * 200
    one, two = prefix(common + "a" * 100), prefix(common + "b" * 100)
    assert len(one) == 300 // 64
    assert one[:3] == two[:3]
    assert one[3] != two[3]
    assert len(set(prefix("y" * 640))) == 10
    assert prefix("short") == ()


def test_prefixes_belong_to_the_choices_of_their_prompt() -> None:
    body = {"prompt": ["a" * 64, "b" * 128], "n": 2}
    question = read_completion(json.dumps(body).encode(), 4.0, 16)
    assert [len(question.prefix(choice)) for choice in range(4)] == [1, 1, 2, 2]
    ids = read_completion(json.dumps({"prompt": [1, 2, 3]}).encode(), 4.0, 1)
    assert ids.prefix(0) == ()
    assert completion(prompt="a" * 640).prefix(0) == ()
