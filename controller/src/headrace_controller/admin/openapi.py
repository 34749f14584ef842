"""The OpenAPI document, made from the table of routes and the types of what comes and goes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from headrace_controller import __version__
from headrace_controller.admin.access import Role
from headrace_controller.admin.answers import Fault, adapter
from headrace_controller.admin.routes import ROUTES, Route

_REF: Final = "#/components/schemas/{model}"
_SAID: Final = {
    400: "What is asked is not understood; the error says what to write.",
    401: "No token, or one that is not known.",
    403: "This token, machine or page may not.",
    404: "There is no such thing.",
    413: "The body is too long.",
    409: "It cannot be done now; the error says why.",
    503: "Not now; the error says why.",
}
_PARAMETERS: Final = {
    "cell": "A cell's id.",
    "site": "A site's name.",
    "model": "A model's id.",
    "request": "A request's id: the answer's x-request-id.",
}


@cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1, as plain data; the same object each time."""
    given: dict[Any, None] = {route.gives: None for route in ROUTES if route.gives is not None}
    taken: dict[Any, None] = {route.body: None for route in ROUTES if route.body is not None}
    wanted: list[tuple[Any, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        *((kind, "serialization", adapter(kind)) for kind in (*given, Fault)),
        *((kind, "validation", adapter(kind)) for kind in taken),
    ]
    found, definitions = TypeAdapter.json_schemas(wanted, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, found)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace controller",
            "version": __version__,
            "description": "What operators see and ask of one region's controller.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, found: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.said,
        "parameters": [_path_parameter(name) for name in re.findall(r"\{(\w+)\}", route.path)]
        + [{"name": q.name, "in": "query", "description": q.said, "schema": q.schema} for q in route.query],
        "responses": _responses(route, found),
    }
    if route.role is not Role.NOBODY:
        # No token is needed on a controller that has none.
        operation["security"] = [{"token": []}, {}]
        operation["description"] = f"Needs the role {route.role.name.lower()}."
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": {"schema": found[(route.body, "validation")]}},
        }
    return operation


def _responses(route: Route, found: dict[Any, Any]) -> dict[str, Any]:
    schema = {"type": "string"} if route.gives is None else found[(route.gives, "serialization")]
    responses: dict[str, Any] = {
        str(route.status): {"description": "Done.", "content": {route.content: {"schema": schema}}}
    }
    refusals = set(route.statuses) | (set() if route.role is Role.NOBODY else {401, 403})
    if route.query or route.role is not Role.NOBODY or route.body is not None:
        refusals.add(400)
    if route.body is not None:
        refusals.add(413)
    fault = {"application/json": {"schema": found[(Fault, "serialization")]}}
    for status in sorted(refusals):
        # What readiness says is for people and probes, in either case.
        content = {route.content: {"schema": {"type": "string"}}} if route.handler == "readyz" else fault
        responses[str(status)] = {"description": _SAID[status], "content": content}
    return responses


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": _PARAMETERS[name],
        "schema": {"type": "string", "minLength": 1, "maxLength": 1024},
    }
