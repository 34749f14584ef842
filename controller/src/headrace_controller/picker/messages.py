"""What Envoy's external-processing filter says, and the answers to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from headrace_controller.picker.requests import Ask
from headrace_controller.xds.names import (
    METADATA_NAMESPACE,
    PICK_KEY,
    PICK_NAMESPACE,
    length_of,
    model_of,
)

ATTRIBUTES: Final = "envoy.filters.http.ext_proc"
MAX_TEXT: Final = 1024
MAX_SESSION: Final = 256
"""Longer ones are none: tens of thousands are remembered."""
MAX_TOKENS: Final = 1 << 30
MAX_BYTES: Final = 1 << 40
_MAX_CHUNK: Final = 65536
_USAGE: Final = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,9})')
_NOTHING: Final[dict[str, Any]] = {}
# True of a body is put into metadata as a string so; other values say the same in their own way.
_TRUE: Final = frozenset({"1", "true"})


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


HEADERS_DONE: Final = _bytes(pb.ProcessingResponse(request_headers=pb.HeadersResponse()))
"""Go on, by the weights."""
BODY_DONE: Final = _bytes(pb.ProcessingResponse(request_body=pb.BodyResponse()))
ANSWER_DONE: Final = _bytes(pb.ProcessingResponse(response_headers=pb.HeadersResponse()))
CHUNK_DONE: Final = _bytes(pb.ProcessingResponse(response_body=pb.BodyResponse()))


class Answered(NamedTuple):
    """The first of an answer: who gave it ("" = the gateway itself), the tokens that it counts, and when its
    headers came, None = they were not sent."""

    address: str
    status: int
    prompt_tokens: int | None = None
    began_at: float | None = None


def read_ask(message: Any, session_header: str) -> Ask:
    """The request that the first message of a stream describes. Never raises for what a peer may send:
    what cannot be is read as absent."""
    attributes, body = _attributes(message), _metadata(message)
    cluster = _text(attributes, "xds.cluster_name")
    model = model_of(cluster)
    length = length_of(cluster) if model is not None else None
    session = _header(message, session_header) or _text(body, "user")
    return Ask(
        key=_text(attributes, "request.id"),
        model=_text(body, "model") if model is None else model,
        size=_number(attributes, "request.size", MAX_BYTES),
        output=_number(body, "max_tokens", MAX_TOKENS),
        streams=_text(body, "stream").lower() in _TRUE,
        session=session if len(session) <= MAX_SESSION else "",
        routed_length=length,
    )


def sends_bodies(message: Any) -> bool:
    """Whether a gateway sends the bodies of requests; its first message says so, an old one's does not."""
    if not message.HasField("protocol_config"):
        return True
    return bool(message.protocol_config.request_body_mode != ProcessingMode.NONE)


def read_head(message: Any) -> Answered:
    """What the headers of an answer say, or its first chunk where no headers are sent: a gateway tells it
    with the first message of an answer."""
    attributes = _attributes(message)
    return Answered(_text(attributes, "upstream.address"), _number(attributes, "response.code", 999) or 0)


def read_chunk(message: Any, head: Answered | None) -> Answered:
    """What the first chunk of an answer says; `head` is what its headers said, None = they were not sent."""
    head = head or read_head(message)
    found = None
    chunk = message.response_body.body
    if head.status == 200 and b'"usage"' in chunk[-_MAX_CHUNK:]:
        match = _USAGE.search(chunk[-_MAX_CHUNK:])
        found = int(match.group(1)) if match else None
    return head._replace(prompt_tokens=found)


def named(addresses: Sequence[str], in_body: bool = False) -> bytes:
    """The answer that names cells: the first is tried first; none = go by the weights."""
    done = BODY_DONE if in_body else HEADERS_DONE
    if not addresses:
        return done
    answer = pb.ProcessingResponse()
    endpoints = answer.dynamic_metadata.fields[PICK_NAMESPACE].struct_value.fields[PICK_KEY]
    endpoints.string_value = ",".join(addresses)
    # Fields of a message may follow each other in any order.
    return done + _bytes(answer)


def _attributes(message: Any) -> Any:
    # Looking for a key that is not there would add it.
    return message.attributes[ATTRIBUTES].fields if ATTRIBUTES in message.attributes else _NOTHING


def _metadata(message: Any) -> Any:
    found = message.metadata_context.filter_metadata
    return found[METADATA_NAMESPACE].fields if METADATA_NAMESPACE in found else _NOTHING


def _text(fields: Any, key: str) -> str:
    text: str = fields[key].string_value if key in fields else ""
    return text if len(text) <= MAX_TEXT else ""


def _number(fields: Any, key: str, most: int) -> int | None:
    if key not in fields:
        return None
    value = fields[key].number_value
    return int(value) if 0 < value <= most else None


def _header(message: Any, name: str) -> str:
    for header in message.request_headers.headers.headers:
        if header.key == name:
            raw: bytes = header.raw_value
            text = raw.decode("utf-8", "replace") if raw else str(header.value)
            return text if len(text) <= MAX_TEXT else ""
    return ""
