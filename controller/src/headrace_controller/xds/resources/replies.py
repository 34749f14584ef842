"""What the gateway itself answers: errors in the form that OpenAI clients read, and the models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from google.protobuf import struct_pb2

from headrace_controller.projection.plan import PoolShape
from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.names import METADATA_NAMESPACE
from headrace_controller.xds.resources.wire import set_header

MODEL_HEADER = "x-headrace-model"
"""Names the model of a request whose body cannot: a form, a binary."""

ASKED_MODEL = f"%DYNAMIC_METADATA({METADATA_NAMESPACE}:model)%"

NO_CAPACITY_FLAGS = ("UH",)
"""Response flags: no healthy endpoint in the pool."""

UPSTREAM_FLAGS = ("UF", "UC", "UR", "URX", "LR", "UO", "NC", "UT", "UMSDR")
"""Response flags: an endpoint was chosen, or none could be reached, and no answer came of it."""


def error_format(message: str, kind: str, param: str | None, code: str) -> Any:
    """A JSON error body; `message` may hold Envoy's %COMMANDS%, which are then escaped as JSON."""
    body = struct_pb2.Struct()
    body.update({"error": {"message": message, "type": kind, "param": param, "code": code}})
    return substitution_format_string_pb2.SubstitutionFormatString(json_format=body)


UNKNOWN_MODEL = error_format(
    f"The model '{ASKED_MODEL}' does not exist here; GET /v1/models lists the models.",
    "invalid_request_error",
    "model",
    "model_not_found",
)
UNKNOWN_HEADER_MODEL = error_format(
    f"The model '%REQ({MODEL_HEADER})%' of the {MODEL_HEADER} header does not exist here; GET /v1/models "
    "lists the models.",
    "invalid_request_error",
    "model",
    "model_not_found",
)
UNKNOWN_LISTED_MODEL = error_format(
    "There is no model at '%REQ(:path)%'; GET /v1/models lists the models.",
    "invalid_request_error",
    "model",
    "model_not_found",
)
FORM_WITHOUT_MODEL = error_format(
    f"The model of a form is not read here; name it in the {MODEL_HEADER} header, too.",
    "invalid_request_error",
    "model",
    "model_missing",
)
NOT_JSON = error_format(
    "The request body is not JSON; send valid JSON with Content-Type: application/json, or name the model "
    f"in the {MODEL_HEADER} header.",
    "invalid_request_error",
    None,
    "invalid_json",
)
NO_MODEL = error_format(
    "The request names no model: send a JSON body with a 'model' (Content-Type: application/json); "
    "GET /v1/models lists the models.",
    "invalid_request_error",
    "model",
    "model_missing",
)


def no_path(paths: Iterable[str]) -> Any:
    """The error of a path that is not served; it names those that are."""
    return error_format(
        f"Nothing is served at '%REQ(:path)%'; served are GET /v1/models and {', '.join(paths)}.",
        "invalid_request_error",
        None,
        "path_not_served",
    )


def model_list(entries: Iterable[str]) -> str:
    """The body of GET /v1/models, of the bodies of its models."""
    return f'{{"object": "list", "data": [{", ".join(entries)}]}}'


def model_entry(name: str, shape: PoolShape) -> str:
    """The body of GET /v1/models/NAME."""
    # `created` is the epoch, for no one knows it.
    entry: dict[str, object] = {"id": name, "object": "model", "created": 0, "owned_by": "headrace"}
    if shape.max_model_len is not None:
        entry["max_model_len"] = shape.max_model_len
    return json.dumps(entry)


def local_replies(settings: EnvoySettings) -> Any:
    """How the replies that Envoy makes up on failures look; other replies stay as they are."""
    retry_after = set_header("retry-after", str(settings.retry_after_s))
    no_capacity = _mapper(
        _flags(NO_CAPACITY_FLAGS),
        error_format(
            f"No replica of the model '{ASKED_MODEL}' can take requests now; try again later.",
            "server_error",
            None,
            "no_ready_replica",
        ),
    )
    no_capacity.headers_to_add.append(retry_after)
    unreachable = _mapper(
        _flags(UPSTREAM_FLAGS),
        error_format("The replica ended before it answered.", "server_error", None, "replica_failed"),
    )
    unreachable.headers_to_add.append(retry_after)
    too_large = _mapper(
        _status(413),
        error_format(
            f"The request body is larger than {settings.max_request_bytes} bytes.",
            "invalid_request_error",
            None,
            "request_too_large",
        ),
    )
    # Envoy's own word for it is a bare 403.
    no_upgrade = _mapper(
        _status(403),
        error_format(
            "No WebSocket and no other protocol upgrade is served here.",
            "invalid_request_error",
            None,
            "path_not_served",
        ),
    )
    no_upgrade.status_code.value = 404
    return http_connection_manager_pb2.LocalReplyConfig(
        mappers=[no_capacity, unreachable, too_large, no_upgrade]
    )


def _mapper(condition: Any, body: Any) -> Any:
    return http_connection_manager_pb2.ResponseMapper(filter=condition, body_format_override=body)


def _flags(flags: tuple[str, ...]) -> Any:
    return accesslog_pb2.AccessLogFilter(
        response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=list(flags))
    )


def _status(code: int) -> Any:
    comparison = accesslog_pb2.ComparisonFilter(
        op=accesslog_pb2.ComparisonFilter.EQ,
        value=base_pb2.RuntimeUInt32(default_value=code, runtime_key="headrace.local_reply_status"),
    )
    return accesslog_pb2.AccessLogFilter(
        status_code_filter=accesslog_pb2.StatusCodeFilter(comparison=comparison)
    )
