"""An engine's static facts: its models and its version."""

from __future__ import annotations

from typing import Any

from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.errors import AnswerError
from headrace_agent.collectors.readings import Model

MAX_MODELS = 1024
_MAX_TOKENS = 2**31


async def read_models(client: EngineClient, timeout_s: float) -> tuple[Model, ...]:
    """The engine's model list. Raises CallError."""
    return parse_models(await client.get_json("/v1/models", timeout_s))


async def read_version(client: EngineClient, timeout_s: float) -> str:
    """The engine's version, empty where it does not say. Raises CallError where it is not there."""
    try:
        body = await client.get_json("/version", timeout_s)
    except AnswerError:
        return ""
    version = body.get("version") if isinstance(body, dict) else None
    return version[:128] if isinstance(version, str) else ""


def parse_models(body: Any) -> tuple[Model, ...]:
    """Read the body of /v1/models; entries without an id are left out. Raises AnswerError."""
    entries = body.get("data") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise AnswerError("GET /v1/models answered no list of models")
    named = [entry for entry in entries[:MAX_MODELS] if isinstance(entry, dict) and _text(entry, "id")]
    ids = {entry["id"] for entry in named}
    return tuple(_model(entry, ids) for entry in named)


def _model(entry: dict[str, Any], ids: set[str]) -> Model:
    length = entry.get("max_model_len")
    known = type(length) is int and 0 < length < _MAX_TOKENS
    return Model(entry["id"], length if known else None, _base(entry, ids))


def _base(entry: dict[str, Any], ids: set[str]) -> str:
    """The model under a LoRA adapter: its parent, or another listed model as its root."""
    parent, root = _text(entry, "parent"), _text(entry, "root")
    if parent:
        return parent
    return root if entry.get("max_model_len") is None and root in ids - {entry["id"]} else ""


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""
