"""Asks a port what it is: a few GETs, each bounded in time and size, one after the other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from headrace_agent.collectors.app.facts import parse_models
from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.dial import Dialer
from headrace_agent.collectors.app.http.errors import AnswerError, CallError
from headrace_agent.collectors.app.pages.kinds import detect
from headrace_agent.collectors.exposition import MAX_PAGE_BYTES
from headrace_agent.collectors.hardware.dcgm import PREFIX
from headrace_agent.commands.discover.found import Answers, Candidate
from headrace_shared.clock import Clock

# Everything that is asked of one port, together.
PORT_S: Final = 4.0
DCGM: Final = "dcgm"
HEADRACE: Final = "headrace"
_OTHER_PAGES: Final = ((PREFIX.encode(), DCGM), (b"headrace_", HEADRACE))


async def ask(candidate: Candidate, timeout_s: float, clock: Clock) -> Answers:
    """What the port is. Never raises for what it answers."""
    client = EngineClient(Dialer(candidate.url, clock), candidate.url)
    try:
        return await _Interview(client, timeout_s).hold()
    finally:
        client.close()


class _Interview:
    def __init__(self, client: EngineClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def hold(self) -> Answers:
        """Ask until it is known what this is; a port that does not answer the first GET is let be."""
        try:
            page = await self._client.get("/metrics", self._timeout_s, MAX_PAGE_BYTES)
        except AnswerError:
            page = Answer(0, b"")
        except CallError:
            return Answers()
        kinds = detect(page.body) if page.status == 200 else ()
        other = next((name for mark, name in _OTHER_PAGES if page.status == 200 and mark in page.body), "")
        if other and not kinds:
            return Answers(http=True, page_of=other, metrics_status=page.status)
        models_status, body = await self._json("/v1/models")
        if not kinds and body is not None:
            kinds = await self._second_page()
        found = Answers(
            http=True,
            kinds=kinds,
            metrics_status=page.status,
            models_status=models_status,
            models=_models(body),
            owner=_owner(body),
        )
        return await self._further(found)

    async def _further(self, found: Answers) -> Answers:
        """What tells the kinds apart that share an API, and the version."""
        version, triton, tgi = "", False, False
        if found.models_status == 200 or "vllm" in found.kinds:
            _, said = await self._json("/version")
            version = _text(said, "version")
        elif found.models_status not in (401, 403):
            status, _ = await self._json("/v2/health/ready")
            triton = status in (200, 400) and (await self._json("/v2"))[0] == 200
        if "tgi" in found.kinds or not (found.kinds or triton or found.owner):
            _, said = await self._json("/info")
            tgi = bool(_text(said, "model_id")) and isinstance(said, dict) and "max_total_tokens" in said
            version = version or (_text(said, "version") if tgi else "")
        return replace(found, version=version[:128], triton=triton, tgi=tgi)

    async def _second_page(self) -> tuple[str, ...]:
        """trtllm-serve has its page elsewhere."""
        try:
            page = await self._client.get("/prometheus/metrics", self._timeout_s, MAX_PAGE_BYTES)
        except CallError:
            return ()
        return detect(page.body) if page.status == 200 else ()

    async def _json(self, path: str) -> tuple[int | None, Any]:
        """Status and JSON of an answer; None for each that is not there."""
        try:
            answer = await self._client.get(path, self._timeout_s)
        except CallError:
            return None, None
        return answer.status, _parse(answer)


def _parse(answer: Answer) -> Any:
    if answer.status != 200:
        return None
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _models(body: Any) -> tuple[Any, ...]:
    try:
        return parse_models(body)
    except AnswerError:
        return ()


def _owner(body: Any) -> str:
    """Who says to own the models: engines name themselves there."""
    entries = body.get("data") if isinstance(body, dict) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return _text(first, "owned_by").lower()[:64]


def _text(data: Any, key: str) -> str:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, str) else ""
