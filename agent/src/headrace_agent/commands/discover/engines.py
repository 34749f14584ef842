"""From what ports answered to engines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace_agent.commands.discover.found import Answers, Candidate, Engine
from headrace_agent.commands.discover.recognise import DCGM

# What engines write into owned_by of their models.
_OWNERS: Final[Mapping[str, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt-llm",
    "llamacpp": "llamacpp",
}
_NO_KEY: Final = (401, 403)


def recognise(asked: Sequence[tuple[Candidate, Answers]]) -> tuple[list[Engine], str, list[str]]:
    """Engines, the DCGM exporter's address ("" = none), and notes on what was not taken."""
    engines: list[Engine] = []
    pages: list[tuple[Candidate, str]] = []
    notes: list[str] = []
    dcgm_url = ""
    for candidate, answers in asked:
        if answers.page_of == DCGM:
            dcgm_url = dcgm_url or f"{candidate.url}/metrics"
        elif (kind := _kind(answers)) and _has_api(answers):
            engines.append(_engine(candidate, answers, kind))
        elif answers.kinds:
            pages.append((candidate, answers.kinds[0]))
        elif note := _note(candidate, answers):
            notes.append(note)
    for candidate, kind in pages:
        if not _join(engines, candidate, kind):
            notes.append(f"port {candidate.port} shows {kind} metrics, and no API of that engine was found")
    return engines, dcgm_url, notes


def _kind(answers: Answers) -> str:
    if answers.kinds:
        return answers.kinds[0]
    if answers.tgi:
        return "tgi"
    if answers.triton:
        return "triton"
    return _OWNERS.get(answers.owner, "")


def _has_api(answers: Answers) -> bool:
    return answers.models_status in (200, *_NO_KEY) or answers.triton or answers.tgi


def _engine(candidate: Candidate, answers: Answers, kind: str) -> Engine:
    return Engine(
        candidate,
        kind,
        answers.version,
        answers.models,
        shows_metrics=bool(answers.kinds),
        wants_key=answers.models_status in _NO_KEY,
    )


def _join(engines: list[Engine], page: Candidate, kind: str) -> bool:
    """Give a page on a port of its own to the engine that it is of: one of the same processes, or
    the only one of its kind that lacks a page."""
    lacking = [each for each in engines if each.kind == kind and not each.shows_metrics]
    same = [each for each in lacking if each.candidate.pids & page.pids]
    owners = same or lacking
    if len(owners) != 1:
        return False
    at = engines.index(owners[0])
    engines[at] = replace(engines[at], shows_metrics=True, metrics_url=f"{page.url}/metrics")
    return True


def _note(candidate: Candidate, answers: Answers) -> str:
    if answers.models_status == 200:
        owner = f", owned by {answers.owner}" if answers.owner else ""
        return (
            f"port {candidate.port} lists models{owner}, and is no engine known here; "
            "if it is one and no proxy, add it by hand"
        )
    if candidate.like_engine and not answers.http:
        return (
            f"port {candidate.port} belongs to an engine and does not answer HTTP: it loads, hangs, or "
            "speaks TLS; if it is its API, add it by hand, with https:// in its url"
        )
    return ""
