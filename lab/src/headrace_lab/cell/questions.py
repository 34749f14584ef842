"""Bodies of completion requests, read and checked."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace_lab.cell.errors import ApiError

DEFAULT_MAX_TOKENS = 16
MAX_CHOICES = 256
IMAGE_TOKENS = 576
"""Prompt tokens that an image or another part without text counts for."""


@dataclass(frozen=True, slots=True)
class Question:
    """A completion request.

    `prompts` holds the size of each prompt in tokens; the answer has `n` choices for each.
    `model` is empty where the client named none. `prefixes` holds, for a prompt given as text, the
    ids of its leading whole blocks, each standing for its text and all before it.
    """

    model: str
    prompts: tuple[int, ...]
    max_tokens: int
    n: int
    stream: bool
    include_usage: bool
    ignore_eos: bool
    chat: bool
    prefixes: tuple[tuple[int, ...], ...] = ()

    @property
    def choices(self) -> list[int]:
        """The prompt size of each choice, in the order of the choices."""
        return [tokens for tokens in self.prompts for _ in range(self.n)]

    def prefix(self, choice: int) -> tuple[int, ...]:
        """The prefix of a choice's prompt; none where it is not known."""
        prompt = choice // self.n
        return self.prefixes[prompt] if prompt < len(self.prefixes) else ()


def read_completion(raw: bytes, bytes_per_token: float, prefix_block: int = 0) -> Question:
    """Read a body of /v1/completions; with `prefix_block` tokens a block, prefixes too. Raises ApiError."""
    body = _read_object(raw)
    if body.get("prompt") is None:
        raise ApiError(400, "Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    prompts = _count_prompts(body["prompt"], bytes_per_token)
    question = _question(body, prompts, body.get("max_tokens"), chat=False)
    if not prefix_block:
        return question
    size = round(prefix_block * bytes_per_token)
    return replace(question, prefixes=_prefixes(body["prompt"], size))


def read_chat(raw: bytes, bytes_per_token: float, prefix_block: int = 0) -> Question:
    """Read a body of /v1/chat/completions; its prefixes are not told. Raises ApiError."""
    body = _read_object(raw)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages: give a list of at least one message.", "messages")
    size, extra = 0, 0
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ApiError(400, "messages: each message must be an object with a role.", "messages")
        text, images = _measure_content(message.get("content"))
        size += text + len(message["role"])
        extra += images * IMAGE_TOKENS
    if body.get("tools"):
        size += len(json.dumps(body["tools"]))
    asked = body.get("max_completion_tokens")
    asked = body.get("max_tokens") if asked is None else asked
    return _question(body, (_tokens(size, bytes_per_token) + extra,), asked, chat=True)


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"The body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "The body must be a JSON object.")
    return body


def _question(body: dict[str, Any], prompts: tuple[int, ...], max_tokens: Any, chat: bool) -> Question:
    options = _field(body, "stream_options", {}, lambda v: isinstance(v, dict), "an object")
    if max_tokens is not None and not _is_count(max_tokens):
        raise ApiError(400, f"max_tokens must be at least 1, got {str(max_tokens)[:80]}.", "max_tokens")
    question = Question(
        model=_field(body, "model", "", lambda v: isinstance(v, str), "a string"),
        prompts=prompts,
        max_tokens=_field(
            {"max_tokens": max_tokens}, "max_tokens", DEFAULT_MAX_TOKENS, _is_count, "at least 1"
        ),
        n=_field(body, "n", 1, _is_count, "at least 1"),
        stream=_field(body, "stream", False, _is_flag, "true or false"),
        include_usage=_field(options, "include_usage", False, _is_flag, "true or false"),
        ignore_eos=_field(body, "ignore_eos", False, _is_flag, "true or false"),
        chat=chat,
    )
    if len(question.prompts) * question.n > MAX_CHOICES:
        raise ApiError(400, f"n: at most {MAX_CHOICES} choices in one request.", "n")
    return question


def _field(body: dict[str, Any], name: str, default: Any, fits: Callable[[Any], bool], wanted: str) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if not fits(value):
        raise ApiError(400, f"{name} must be {wanted}, got {str(value)[:80]!r}.", name)
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _tokens(size: int, bytes_per_token: float) -> int:
    return max(1, math.ceil(size / bytes_per_token))


def _count_prompts(prompt: Any, bytes_per_token: float) -> tuple[int, ...]:
    """Sizes in tokens of a text, a list of texts, a list of token ids or a list of such lists."""
    if isinstance(prompt, str):
        return (_tokens(_size(prompt), bytes_per_token),)
    if isinstance(prompt, list) and prompt:
        if all(isinstance(item, str) for item in prompt):
            return tuple(_tokens(_size(item), bytes_per_token) for item in prompt)
        if _are_ids(prompt):
            return (len(prompt),)
        if all(isinstance(item, list) and item and _are_ids(item) for item in prompt):
            return tuple(len(item) for item in prompt)
    raise ApiError(400, "prompt must be a string, an array of strings, or an array of token ids.", "prompt")


def _prefixes(prompt: Any, block_bytes: int) -> tuple[tuple[int, ...], ...]:
    """The ids of the whole blocks of each text; none for prompts of token ids."""
    texts = [prompt] if isinstance(prompt, str) else prompt
    if not all(isinstance(text, str) for text in texts):
        return ()
    return tuple(_blocks(text.encode("utf-8", "surrogatepass"), block_bytes) for text in texts)


def _blocks(text: bytes, size: int) -> tuple[int, ...]:
    ids, chain = [], 0
    for start in range(0, len(text) - size + 1, size):
        chain = zlib.crc32(text[start : start + size], chain)
        # The length keeps blocks apart that stand at different places.
        ids.append(chain << 24 | start // size)
    return tuple(ids)


def _are_ids(items: list[Any]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in items)


def _measure_content(content: Any) -> tuple[int, int]:
    """Bytes of text and number of other parts in a message's content."""
    if content is None:
        return 0, 0
    if isinstance(content, str):
        return _size(content), 0
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ApiError(400, "messages: content must be a string or an array of parts.", "messages")
    texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
    return sum(map(_size, texts)), len(content) - len(texts)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
