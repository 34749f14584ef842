"""Bodies of completion answers: whole, and as server-sent events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace_lab.engine import Finish

TOKEN = " tok"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the events and the body of one answer have in common; `created` in Unix seconds."""

    id: str
    model: str
    created: int
    chat: bool

    def head(self, index: int) -> bytes:
        """The event that opens a choice of a chat answer, sent with its first token."""
        return self._event([self._choice(index, {"delta": {"role": "assistant", "content": ""}}, None)])

    def token(self, index: int, finish: Finish | None) -> bytes:
        """The event of one token of a choice."""
        text: dict[str, Any] = {"delta": {"content": TOKEN}} if self.chat else {"text": TOKEN}
        return self._event([self._choice(index, text, finish)])

    def usage(self, finishes: Sequence[Finish]) -> bytes:
        """The event with the figures of the whole answer, for clients that asked for it."""
        return self._event([], _usage(finishes))

    def whole(self, finishes: Sequence[Finish]) -> dict[str, Any]:
        """The body of an answer that is not streamed; one finish for each choice, in order."""
        choices = []
        for index, finish in enumerate(finishes):
            text = TOKEN * finish.generated_tokens
            said: dict[str, Any] = (
                {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
            )
            choices.append(self._choice(index, said, finish))
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._frame(kind), "choices": choices, "usage": _usage(finishes)}

    def _choice(self, index: int, said: dict[str, Any], finish: Finish | None) -> dict[str, Any]:
        reason = None if finish is None else finish.reason.value
        return {"index": index, **said, "logprobs": None, "finish_reason": reason, "stop_reason": None}

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
        frame = self._frame("chat.completion.chunk" if self.chat else "text_completion")
        frame["choices"] = choices
        if usage is not None:
            frame["usage"] = usage
        return b"data: " + json.dumps(frame, separators=(",", ":")).encode() + b"\n\n"

    def _frame(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def _usage(finishes: Sequence[Finish]) -> dict[str, int]:
    prompt = sum(finish.prompt_tokens for finish in finishes)
    completion = sum(finish.generated_tokens for finish in finishes)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }
