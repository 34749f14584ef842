"""The routes that the gateway answers itself: the list of models, and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2

from headrace_controller.xds.resources import replies
from headrace_controller.xds.resources.routes import matches
from headrace_controller.xds.resources.wire import set_header

MODELS_PATH = "/v1/models"


def other_paths(paths: Sequence[str]) -> list[Any]:
    """404 for every path that is neither of `paths` nor answered here; they stand before all others."""
    error = replies.no_path(paths)
    changed = route_components_pb2.RouteMatch(path_separated_prefix=MODELS_PATH)
    changed.headers.append(matches.method("GET", invert=True))
    return [
        _error("no-path", matches.elsewhere(paths, MODELS_PATH), 404, error),
        _error("no-method", changed, 404, error),
    ]


def unknown_model() -> Any:
    """404 for a body that names a model which no route before this one was for."""
    return _error("unknown-model", matches.any_model(), 404, replies.UNKNOWN_MODEL)


def model_list(body: str) -> Any:
    """GET of the list of models."""
    return _json("models", MODELS_PATH, body)


def listed(name: str, entry: str) -> Iterator[Any]:
    """GET of a model's own entry, under its name as it is and percent-encoded."""
    for path in dict.fromkeys((name, quote(name, safe="/:@"), quote(name, safe=""))):
        if path.isascii() and path.isprintable():
            yield _json(f"models/{path}", f"{MODELS_PATH}/{path}", entry)


def unknown_listed() -> Any:
    """404 for GET of the entry of a model which no route before this one was for."""
    unknown = matches.match(prefix=f"{MODELS_PATH}/")
    unknown.headers.append(matches.method("GET"))
    return _error("unknown-listed-model", unknown, 404, replies.UNKNOWN_LISTED_MODEL)


def other_errors() -> list[Any]:
    """What is left when no model was found in the body; the last routes of all."""
    return [
        _error("unknown-header-model", matches.any_header_model(), 404, replies.UNKNOWN_HEADER_MODEL),
        _error("form-without-model", matches.form(), 400, replies.FORM_WITHOUT_MODEL),
        _error("not-json", matches.not_json(), 400, replies.NOT_JSON),
        _error("no-model", matches.match(), 400, replies.NO_MODEL),
    ]


def _json(name: str, path: str, body: str) -> Any:
    return route_components_pb2.Route(
        name=name,
        match=route_components_pb2.RouteMatch(path=path, headers=[matches.method("GET")]),
        direct_response=route_components_pb2.DirectResponseAction(
            status=200, body=base_pb2.DataSource(inline_string=body)
        ),
        response_headers_to_add=[set_header("content-type", "application/json")],
    )


def _error(name: str, match: Any, status: int, body: Any) -> Any:
    return route_components_pb2.Route(
        name=name,
        match=match,
        direct_response=route_components_pb2.DirectResponseAction(status=status, body_format=body),
    )
