"""Which requests a route is for: by path, header, size, and the fields of the body that the filter read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import metadata_pb2, string_pb2, value_pb2
from envoy.type.v3 import range_pb2

from headrace_controller.capability import SizeBound
from headrace_controller.xds.names import METADATA_NAMESPACE, STREAMS_KEY
from headrace_controller.xds.resources.replies import MODEL_HEADER


def match(*metadata: Any, prefix: str = "/") -> Any:
    """Requests under `prefix` that have all of `metadata`."""
    return route_components_pb2.RouteMatch(prefix=prefix, dynamic_metadata=metadata)


def model_is(name: str) -> Any:
    """Requests whose body names this model."""
    exact = string_pb2.StringMatcher(exact=name)
    return match(_metadata("model", value_pb2.ValueMatcher(string_match=exact)))


def any_model() -> Any:
    """Requests whose body names a model."""
    return match(_metadata("model", value_pb2.ValueMatcher(present_match=True)))


def not_json() -> Any:
    """Requests whose body could not be read."""
    return match(_metadata("not_json", value_pb2.ValueMatcher(present_match=True)))


def header_is(name: str) -> Any:
    """Requests whose header names this model."""
    made = match()
    made.headers.add(name=MODEL_HEADER, string_match=string_pb2.StringMatcher(exact=name))
    return made


def any_header_model() -> Any:
    """Requests whose header names a model."""
    made = match()
    made.headers.add(name=MODEL_HEADER, present_match=True)
    return made


def form() -> Any:
    """Requests that are a form."""
    made = match()
    made.headers.add(
        name="content-type",
        string_match=string_pb2.StringMatcher(prefix="multipart/", ignore_case=True),
    )
    return made


def elsewhere(paths: Iterable[str], tree: str) -> Any:
    """Requests of other paths than `paths`, with or without a query, and `tree` with all below it."""
    made = match()
    # Not one regular expression: Envoy refuses those of more than a hundred steps.
    for path in (*paths, tree):
        _add_no_path(made, string_pb2.StringMatcher(exact=path))
        _add_no_path(made, string_pb2.StringMatcher(prefix=f"{path}?"))
    _add_no_path(made, string_pb2.StringMatcher(prefix=f"{tree}/"))
    return made


def method(name: str, invert: bool = False) -> Any:
    """The header matcher of a method; `invert`: of all others."""
    return route_components_pb2.HeaderMatcher(
        name=":method", string_match=string_pb2.StringMatcher(exact=name), invert_match=invert
    )


def add_bound(made: Any, bound: SizeBound) -> None:
    """Take only requests of known, small size, and of the output that the bound is for."""
    made.headers.add(name="content-length", range_match=range_pb2.Int64Range(start=0, end=bound.bytes_below))
    if bound.output_from is None:
        silent = _metadata("max_tokens", value_pb2.ValueMatcher(present_match=True))
        silent.invert = True
        made.dynamic_metadata.append(silent)
        return
    asked = range_pb2.DoubleRange(start=bound.output_from, end=bound.output_below)
    limit = value_pb2.ValueMatcher(double_match={"range": asked})
    made.dynamic_metadata.append(_metadata("max_tokens", limit))


def add_streams(made: Any) -> None:
    """Take only requests that ask for a stream."""
    made.dynamic_metadata.append(_metadata(STREAMS_KEY, value_pb2.ValueMatcher(bool_match=True)))


def _add_no_path(made: Any, path: Any) -> None:
    made.headers.add(name=":path", string_match=path, invert_match=True)


def _metadata(key: str, value: Any) -> Any:
    return metadata_pb2.MetadataMatcher(
        filter=METADATA_NAMESPACE,
        path=[metadata_pb2.MetadataMatcher.PathSegment(key=key)],
        value=value,
    )
