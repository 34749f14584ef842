"""The warm-up: one real completion, without which a healthy engine is not yet serving."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.errors import AnswerError, hint
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
    """The model to ask: the first that is no adapter. Raises AnswerError where there is none."""
    for model in models:
        if not model.base_model:
            return model.id
    raise AnswerError("the engine lists no model to ask a completion of")


async def complete(client: EngineClient, model: str, timeout_s: float) -> None:
    """Ask for one token and return when it was answered with 200. Raises CallError."""
    body = {"model": model, "prompt": "hi", "max_tokens": 1}
    answer = await client.post("/v1/completions", body, timeout_s)
    if answer.status != 200:
        what = f"POST /v1/completions answered {answer.status}{_message(answer.body)}"
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
    words = error.get("message") if isinstance(error, dict) else None
    return f" ({words[:160]})" if isinstance(words, str) and words else ""
