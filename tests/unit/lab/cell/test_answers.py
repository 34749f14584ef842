"""Bodies of answers and their events."""

from __future__ import annotations

import json
from typing import Any

from headrace_lab.cell.answers import Answer
from headrace_lab.engine import Finish, FinishReason

FINISH = Finish(FinishReason.LENGTH, 10, 3, 1.0, 0.1, 0.2, 0.7, 0)


def read(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    body: dict[str, Any] = json.loads(event[6:])
    return body


def test_completion_events() -> None:
    answer = Answer("cmpl-1", "m", 1700, chat=False)
    middle = read(answer.token(1, None))
    assert middle["object"] == "text_completion"
    assert middle["choices"][0]["index"] == 1
    assert middle["choices"][0]["finish_reason"] is None
    assert middle["choices"][0]["text"]
    assert read(answer.token(0, FINISH))["choices"][0]["finish_reason"] == "length"


def test_chat_events() -> None:
    answer = Answer("chatcmpl-1", "m", 1700, chat=True)
    assert read(answer.head(0))["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    token = read(answer.token(0, None))
    assert token["object"] == "chat.completion.chunk"
    assert token["choices"][0]["delta"]["content"]


def test_usage_sums_over_choices() -> None:
    answer = Answer("cmpl-1", "m", 1700, chat=False)
    event = read(answer.usage([FINISH, FINISH]))
    assert event["choices"] == []
    assert event["usage"] == {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
    whole = answer.whole([FINISH, FINISH])
    assert whole["usage"] == event["usage"]
    assert [c["index"] for c in whole["choices"]] == [0, 1]
    assert Answer("c", "m", 1, chat=True).whole([FINISH])["choices"][0]["message"]["role"] == "assistant"
