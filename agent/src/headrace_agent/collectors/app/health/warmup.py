"""The warm-up: one real completion, without which a healthy engine is not yet serving."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from headrace_agent.collectors.app.endpoints import ENDPOINTS, NOT_FOUND, TRITON
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.errors import AnswerError, hint
from headrace_agent.collectors.app.pages.engines.triton import fronts
from headrace_agent.collectors.readings import Model

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 5.0


def delays() -> Iterator[float]:
    """Seconds to wait after each failed try, doubling up to a limit; without end."""
    delay = FIRST_DELAY_S
    while True:
        yield delay
        delay = min(2 * delay, LONGEST_DELAY_S)


def choose_model(models: Sequence[Model]) -> str:
    """The model to ask: one that clients ask, and no adapter. Raises AnswerError where there is none."""
    names = [model.id for model in models if not model.base_model]
    asked = fronts(frozenset(names))
    for name in names:
        if name in asked:
            return name
    raise AnswerError("the engine lists no model to ask a completion of")


async def complete(client: EngineClient, model: str, timeout_s: float, kind: str = "") -> None:
    """Ask for one token, as engines of `kind` are asked, and return when it was answered with 200.

    Raises CallError.
    """
    path, body = ENDPOINTS[kind].completion(model)
    answer = await client.post(path, body, timeout_s)
    if answer.status == NOT_FOUND and kind == TRITON:
        # Its OpenAI frontend has other paths.
        path, body = ENDPOINTS[""].completion(model)
        answer = await client.post(path, body, timeout_s)
    if answer.status != 200:
        what = f"POST {path} answered {answer.status}{_message(answer.body)}"
        raise AnswerError(what + (hint(answer.status) or _no_completions(answer.status)))


def _no_completions(status: int) -> str:
    if status not in (400, 404, 405):
        return ""
    return "; if this engine serves no completions, set engine.warm_up: false"


def _message(body: bytes) -> str:
    """The engine's own words in an error body, shortened; nothing where there are none."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(data, dict):
        return ""
    error = data.get("error", data)
    # Triton and TGI write the words where others write an object that holds them.
    words = error.get("message") if isinstance(error, dict) else error
    return f" ({words[:160]})" if isinstance(words, str) and words else ""
