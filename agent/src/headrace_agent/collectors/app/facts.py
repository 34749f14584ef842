"""An engine's static facts: its models, its version, and what it calls itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from headrace_agent.collectors.app.endpoints import ENDPOINTS, LLAMACPP, NOT_FOUND, TGI, TRITON
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.errors import AnswerError, CallError, hint
from headrace_agent.collectors.readings import EngineFacts, Model

MAX_MODELS = 1024
_MAX_TOKENS = 2**31
_MAX_TEXT: Final = 128
_MODELS: Final = "/v1/models"
# Whom the entries of a model list say they belong to -> the kind of engine that says so.
_OWNERS: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt-llm",
    "llamacpp": "llamacpp",
}


async def read(client: EngineClient, kind: str, timeout_s: float) -> EngineFacts:
    """The facts of an engine of `kind`, which is "" where it is not known; what it calls itself
    then stands in. Raises CallError where its models cannot be had."""
    models, owner = await _read_models(client, kind, timeout_s)
    known = kind or owner
    try:
        version = await read_version(client, timeout_s, known)
    except CallError:
        # Some ask what works behind the server for it; that it is busy makes no model unknown.
        version = ""
    return EngineFacts(known, version, models)


async def read_version(client: EngineClient, timeout_s: float, kind: str = "") -> str:
    """The engine's version, empty where it does not say. Raises CallError where it is not there."""
    for path in ENDPOINTS[kind].version:
        try:
            body = await client.get_json(path, timeout_s)
        except AnswerError:
            continue
        return _text(body, ENDPOINTS[kind].version_key)[:_MAX_TEXT] if isinstance(body, dict) else ""
    return ""


async def _read_models(client: EngineClient, kind: str, timeout_s: float) -> tuple[tuple[Model, ...], str]:
    """The models, and the kind of engine that their list says it is."""
    if kind == TGI:
        return parse_info(await client.get_json("/info", timeout_s)), kind
    if kind == TRITON:
        return await _read_repository(client, timeout_s), kind
    if not kind and (await client.get(_MODELS, timeout_s)).status == NOT_FOUND:
        return await _read_others(client, timeout_s)
    body = await client.get_json(_MODELS, timeout_s)
    models, owner = parse_models(body), owner_of(body)
    if (kind or owner) == LLAMACPP:
        return await _with_context(client, models, timeout_s), owner
    return models, owner


async def _read_others(client: EngineClient, timeout_s: float) -> tuple[tuple[Model, ...], str]:
    """The models of an engine that is not known and has no OpenAI list."""
    for kind in (TGI, TRITON):
        try:
            return await _read_models(client, kind, timeout_s)
        except AnswerError:
            continue
    raise AnswerError(f"GET {_MODELS} answered {NOT_FOUND}{hint(NOT_FOUND)}")


async def _read_repository(client: EngineClient, timeout_s: float) -> tuple[Model, ...]:
    """Triton's models; behind its OpenAI frontend there is another list."""
    answer = await client.post("/v2/repository/index", {"ready": True}, timeout_s)
    if answer.status == NOT_FOUND:
        return parse_models(await client.get_json(_MODELS, timeout_s))
    if answer.status != 200:
        raise AnswerError(f"POST /v2/repository/index answered {answer.status}{hint(answer.status)}")
    try:
        return parse_repository(json.loads(answer.body))
    except (ValueError, RecursionError) as error:
        raise AnswerError("POST /v2/repository/index answered something that is not JSON") from error


async def _with_context(
    client: EngineClient, models: tuple[Model, ...], timeout_s: float
) -> tuple[Model, ...]:
    """llama.cpp lists no length: it is the context of one slot, which its properties tell."""
    try:
        props = await client.get_json("/props", timeout_s)
    except AnswerError:
        return models
    settings = props.get("default_generation_settings") if isinstance(props, dict) else None
    length = _length(settings.get("n_ctx")) if isinstance(settings, dict) else None
    return tuple(replace(model, max_model_len=model.max_model_len or length) for model in models)


def parse_models(body: Any) -> tuple[Model, ...]:
    """Read the body of /v1/models; entries without an id are left out. Raises AnswerError."""
    named = _entries(body)
    ids = {entry["id"] for entry in named}
    return tuple(_model(entry, ids) for entry in named)


def parse_info(body: Any) -> tuple[Model, ...]:
    """Read the body of TGI's /info, which has one model. Raises AnswerError."""
    name = _text(body, "model_id") if isinstance(body, dict) else ""
    if not name:
        raise AnswerError("GET /info answered no model_id")
    return (Model(name, _length(body.get("max_total_tokens"))),)


def parse_repository(body: Any) -> tuple[Model, ...]:
    """Read Triton's index of models; those that are not ready are left out. Raises AnswerError."""
    if not isinstance(body, list):
        raise AnswerError("POST /v2/repository/index answered no list of models")
    named = [entry for entry in body[:MAX_MODELS] if isinstance(entry, dict) and _text(entry, "name")]
    ready = [entry["name"] for entry in named if entry.get("state", "READY") == "READY"]
    return tuple(Model(name) for name in dict.fromkeys(ready))


def owner_of(body: Any) -> str:
    """The kind of engine that a model list says it is; "" where it says nothing known."""
    kinds = {_OWNERS.get(_text(entry, "owned_by").lower(), "") for entry in _entries(body)} - {""}
    return kinds.pop() if len(kinds) == 1 else ""


def _entries(body: Any) -> list[dict[str, Any]]:
    entries = body.get("data") if isinstance(body, dict) else None
    if not isinstance(entries, list):
        raise AnswerError("GET /v1/models answered no list of models")
    return [entry for entry in entries[:MAX_MODELS] if isinstance(entry, dict) and _text(entry, "id")]


def _model(entry: dict[str, Any], ids: set[str]) -> Model:
    return Model(entry["id"], _length(entry.get("max_model_len")), _base(entry, ids))


def _length(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < _MAX_TOKENS else None


def _base(entry: dict[str, Any], ids: set[str]) -> str:
    """The model under a LoRA adapter: its parent, or another listed model as its root."""
    parent, root = _text(entry, "parent"), _text(entry, "root")
    if parent:
        return parent
    return root if entry.get("max_model_len") is None and root in ids - {entry["id"]} else ""


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""
