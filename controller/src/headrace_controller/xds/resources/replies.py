"""What the gateway itself answers: errors in the form that OpenAI clients read, and the models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from google.protobuf import struct_pb2

from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.names import METADATA_NAMESPACE
from headrace_controller.xds.resources.wire import set_header

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


def model_list(models: Iterable[str]) -> str:
    """The body of GET /v1/models; `created` is the epoch, for no one knows it."""
    data = [{"id": model, "object": "model", "created": 0, "owned_by": "headrace"} for model in models]
    return json.dumps({"object": "list", "data": data})


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
    return http_connection_manager_pb2.LocalReplyConfig(mappers=[no_capacity, unreachable, too_large])


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
