"""What requests may carry, and errors that say what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

Cause = Annotated[str, Field("asked", max_length=500, description="Why; it stands in the history.")]
Site = Annotated[str, Field(min_length=1, max_length=128)]


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 5.0 is as whole as 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Body(BaseModel):
    """Base of every body: unknown keys and other types than those told are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class CauseBody(Body):
    """Why something is asked."""

    cause: Cause


class DrainBody(Body):
    """A drain; `deadline_s` seconds until it ends regardless, absent = lifecycle.drain_deadline_s."""

    cause: Cause
    deadline_s: Annotated[float, Field(ge=0, le=86400)] | None = None


class SwitchBody(Body):
    """Something for the whole region, on or off."""

    on: bool
    cause: Cause


class OverrideBody(Body):
    """The weight that a cell is to have at every gateway, 1 to projection.max_weight."""

    weight: Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_whole)]
    cause: Cause


class PinBody(Body):
    """The only sites that may serve a model."""

    sites: Annotated[list[Site], Field(max_length=256)]
    cause: Cause


Some = TypeVar("Some", bound=Body)


async def read_body(request: web.Request, model: type[Some]) -> Some:
    """The request's body; an empty one counts as `{}`. Raises HTTPBadRequest."""
    raw = await request.read()
    try:
        return model.model_validate_json(raw if raw.strip() else b"{}")
    except ValidationError as error:
        raise web.HTTPBadRequest(text=_said(error, model)) from error


def _said(error: ValidationError, model: type[Body]) -> str:
    problems = []
    for detail in error.errors(include_url=False, include_input=False, include_context=False)[:5]:
        place = ".".join(str(part)[:40] for part in detail["loc"])
        kind = detail["type"]
        if kind == "json_invalid":
            problems.append(f"the body is not JSON: {detail['msg']}")
        elif kind == "model_type":
            problems.append("the body must be a JSON object")
        elif kind == "extra_forbidden":
            problems.append(f"{place!r} is unknown; the keys are {', '.join(sorted(model.model_fields))}")
        else:
            problems.append(f"{place}: {detail['msg']}")
    return "; ".join(problems)


def whole_number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query. Raises HTTPBadRequest."""
    text = query.get(name)
    if text is None:
        return default
    digits = len(str(most))
    if text.isascii() and text.isdigit() and len(text) <= digits and least <= int(text) <= most:
        return int(text)
    raise web.HTTPBadRequest(text=f"{name} is {text[:40]!r}; give a whole number from {least} to {most}")
