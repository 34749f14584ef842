"""What an engine's look says. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace_agent.collectors.readings import EngineState, Status
from headrace_agent.commands.check import remedies
from headrace_agent.commands.check.findings import Finding, error, ok, warn
from headrace_agent.commands.check.observe import SeenCell
from headrace_agent.settings import without_secrets
from headrace_shared.signals import CELL_SIGNALS, GPU_SIGNALS

ENGINE_SIGNALS: Final = tuple(name for name in CELL_SIGNALS if name not in GPU_SIGNALS)
_NO_KEY: Final = ("401", "403", "api_key_file")


def judge_engine(seen: SeenCell, warm_up: bool) -> Iterator[Finding]:
    """The findings on one cell's engine; `warm_up`: whether a completion was asked of it."""
    yield _state(seen, warm_up)
    if seen.engine.state in (EngineState.DOWN, EngineState.HUNG) or not (seen.seen or _answers(seen)):
        return
    if seen.seen:
        yield from _models(seen)
    yield _page(seen)
    if warm_up and (why := seen.troubles.get("warm_up")):
        yield error(_about(seen), f"the warm-up got no completion: {why}", remedies.for_engine(why))
    yield from _processes(seen)


def _processes(seen: SeenCell) -> Iterator[Finding]:
    what, _, remedy = seen.process_watch.partition("; ")
    if what:
        watched = what.startswith("watching") and not remedy
        yield ok(_about(seen), what) if watched else warn(_about(seen), what, remedy)


def _about(seen: SeenCell) -> str:
    return f"engine of {seen.cell.id}"


def _answers(seen: SeenCell) -> bool:
    """Whether something answered, if not what was asked for."""
    return " answered " in seen.troubles.get("engine", "")


def _state(seen: SeenCell, warm_up: bool) -> Finding:
    about, state, cause = _about(seen), seen.engine.state, seen.cause
    at = without_secrets(seen.cell.url)
    if not seen.seen:
        why = seen.troubles.get("engine", "no answer")
        if _answers(seen):
            return warn(
                about, f"{at} answers, and its state is not known yet: {why}", "look longer: --wait 8"
            )
        return error(about, f"{at} gives no sign: {why}", remedies.for_engine(why))
    if state is EngineState.SERVING:
        proof = "a completion was answered" if warm_up else "no completion was asked (--warm-up asks one)"
        return ok(about, f"{at} is healthy; {proof}")
    if state is EngineState.SLEEPING:
        return warn(about, f"{at} sleeps: {cause}", "wake it, or drain the cell while it sleeps")
    if state is EngineState.LOADING and "answers nothing" not in cause:
        return warn(
            about, f"{at} is not ready: {cause}", remedies.for_engine(cause) or "wait until it has loaded"
        )
    return error(about, f"{at} does not serve: {cause}", remedies.for_engine(cause))


def _models(seen: SeenCell) -> Iterator[Finding]:
    about, facts, why = _about(seen), seen.engine.facts, seen.troubles.get("models", "")
    if why:
        grave = error if any(word in why for word in _NO_KEY) else warn
        yield grave(about, f"its models are not known: {why}", remedies.for_engine(why))
    elif not facts.models and seen.engine.state is EngineState.SERVING:
        yield warn(about, "it lists no model", "no pool can hold the cell: look at the engine's options")
    elif facts.models:
        names = ", ".join(
            f"{model.id} ({model.max_model_len} tokens)" if model.max_model_len else model.id
            for model in facts.models[:8]
        )
        kind = " ".join(filter(None, [facts.kind or "of unknown kind", facts.version]))
        yield ok(about, f"{kind}, serves {names}")


def _page(seen: SeenCell) -> Finding:
    source, about = seen.engine.source, _about(seen)
    if source.status is not Status.OK:
        return error(about, f"its metrics page: {source.detail}", remedies.for_metrics(source.detail))
    if source.detail:
        return warn(about, f"its metrics page: {source.detail}", remedies.for_metrics(source.detail))
    absent = [name for name in ENGINE_SIGNALS if name not in seen.engine.signals]
    idle = f"; {', '.join(absent)}: nothing to measure in this time" if absent else ""
    return ok(
        about,
        f"its metrics page gives {len(ENGINE_SIGNALS) - len(absent)} of {len(ENGINE_SIGNALS)} signals{idle}",
    )
