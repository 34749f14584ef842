"""What Envoy says of requests and answers, read without trust."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.picker.messages import (
    ATTRIBUTES,
    MAX_TEXT,
    Answered,
    named,
    read_ask,
    read_chunk,
    read_head,
)
from headrace_controller.xds.names import length_of


def first(body: dict[str, Any], headers: tuple[tuple[str, bytes], ...] = (), **attributes: Any) -> Any:
    message = pb.ProcessingRequest()
    message.request_headers.SetInParent()
    for key, value in headers:
        message.request_headers.headers.headers.add(key=key, raw_value=value)
    if attributes:
        message.attributes[ATTRIBUTES].update(
            {key.replace("_", ".", 1): value for key, value in attributes.items()}
        )
    if body:
        message.metadata_context.filter_metadata["headrace"].update(body)
    return message


def test_a_request_as_envoy_tells_it() -> None:
    message = first(
        {"model": "alias", "max_tokens": 200, "stream": "1", "user": "u"},
        (("x-session-id", b"s"),),
        request_id="id", request_size=5300, xds_cluster_name="class/8192/org/model",
    )  # fmt: skip
    ask = read_ask(message, "x-session-id")
    assert (ask.key, ask.model, ask.size, ask.output) == ("id", "org/model", 5300, 200)
    assert (ask.streams, ask.session, ask.routed_length) == (True, "s", 8192)
    assert read_ask(message, "x-other").session == "u"
    assert read_ask(first({"user": "u" * 257}), "x-session-id").session == ""


def test_an_envoy_with_clusters_of_its_own_goes_by_the_body() -> None:
    ask = read_ask(first({"model": "m"}, xds_cluster_name="mine"), "x-session-id")
    assert (ask.model, ask.routed_length, ask.streams, ask.session, ask.size) == ("m", None, False, "", None)


@pytest.mark.parametrize(
    ("cluster", "length"),
    [
        ("pool/m", 0),
        ("pool/class/9/m", 0),
        ("class/9/m", 9),
        ("class/x/m", None),
        ("class/9", None),
        ("", None),
    ],
)
def test_the_class_of_a_cluster(cluster: str, length: int | None) -> None:
    assert length_of(cluster) == length


VALUES = st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.just("y" * 5000) | st.just("1")


@given(
    body=st.dictionaries(st.sampled_from(["model", "max_tokens", "stream", "user", "odd"]), VALUES),
    attributes=st.dictionaries(st.sampled_from(["request_id", "request_size", "xds_cluster_name"]), VALUES),
    header=st.binary(max_size=3) | st.just(b"\xff\xfe"),
)
def test_whatever_is_said_is_read(body: dict[str, Any], attributes: dict[str, Any], header: bytes) -> None:
    ask = read_ask(first(body, (("x-session-id", header),), **attributes), "x-session-id")
    assert all(len(text) <= MAX_TEXT for text in (ask.key, ask.model, ask.session))
    for number in (ask.size, ask.output):
        assert number is None or number >= 0


def answer(chunk: bytes, status: int = 200, address: str = "10.0.0.1:80") -> Any:
    message = pb.ProcessingRequest()
    message.response_body.body = chunk
    message.attributes[ATTRIBUTES].CopyFrom(struct_pb2.Struct())
    message.attributes[ATTRIBUTES].update({"upstream.address": address, "response.code": status})
    return message


def test_the_first_of_an_answer() -> None:
    whole = b'{"choices": [], "usage": {"prompt_tokens": 321, "total_tokens": 400}}'
    assert read_chunk(answer(whole), None) == Answered("10.0.0.1:80", 200, 321)
    assert read_chunk(answer(b"data: {}\n\n"), None) == Answered("10.0.0.1:80", 200)
    assert read_chunk(answer(b'"prompt_tokens": 321'), None).prompt_tokens is None
    assert read_chunk(answer(whole, status=400), None).prompt_tokens is None
    assert read_chunk(pb.ProcessingRequest(), None) == Answered("", 0)
    assert read_head(answer(whole)) == Answered("10.0.0.1:80", 200)


def test_a_gateway_that_sends_headers_says_there_whose_the_answer_is() -> None:
    message = pb.ProcessingRequest()
    message.response_body.body = b'{"usage": {"prompt_tokens": 321}}'
    head = Answered("10.0.0.2:80", 200, began_at=3.5)
    assert read_chunk(message, head) == Answered("10.0.0.2:80", 200, 321, 3.5)


def test_the_named_cells_stand_where_the_balancer_reads() -> None:
    found = pb.ProcessingResponse.FromString(named(["10.0.0.1:80", "[::1]:81"]))
    assert found.WhichOneof("response") == "request_headers"
    in_body = pb.ProcessingResponse.FromString(named(["a"], in_body=True))
    assert in_body.WhichOneof("response") == "request_body"
    assert pb.ProcessingResponse.FromString(named([])) == pb.ProcessingResponse(
        request_headers=pb.HeadersResponse()
    )
    namespace = found.dynamic_metadata.fields["headrace-pick"].struct_value
    assert namespace.fields["endpoints"].string_value == "10.0.0.1:80,[::1]:81"
