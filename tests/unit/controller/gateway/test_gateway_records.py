"""What is read from an entry of an access log, and that nothing a peer sends breaks it."""

from __future__ import annotations

import pytest
from envoy.data.accesslog.v3 import accesslog_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.gateway.loads import Load, read_loads
from headrace_controller.gateway.records import MAX_SECONDS, Outcome, join_address, read_record
from tests.unit.controller.gateway.entries import entry, load_report


@pytest.mark.parametrize(
    ("status", "flags", "outcome"),
    [
        (200, (), Outcome.OK),
        (302, (), Outcome.OK),
        (400, (), Outcome.CLIENT_ERROR),
        (404, (), Outcome.CLIENT_ERROR),
        (413, (), Outcome.CLIENT_ERROR),
        (429, (), Outcome.THROTTLED),
        (500, (), Outcome.SERVER_ERROR),
        (503, (), Outcome.SERVER_ERROR),
        (0, (), Outcome.SERVER_ERROR),
        (503, ("upstream_connection_failure",), Outcome.SERVER_ERROR),
        (503, ("upstream_remote_reset",), Outcome.SERVER_ERROR),
        (200, ("upstream_connection_termination",), Outcome.SERVER_ERROR),
        (0, ("downstream_connection_termination",), Outcome.CANCELLED),
        (200, ("downstream_connection_termination",), Outcome.CANCELLED),
        (200, ("downstream_remote_reset",), Outcome.CANCELLED),
    ],
)
def test_what_became_of_a_request(status: int, flags: tuple[str, ...], outcome: Outcome) -> None:
    assert read_record(entry("10.0.0.1:8000", status, *flags)).outcome is outcome


@pytest.mark.parametrize("status", [404, 413, 503])
def test_what_the_gateway_answered_itself_is_no_cells(status: int) -> None:
    record = read_record(entry("", status, "no_healthy_upstream"))
    assert record.outcome is Outcome.UNROUTED
    assert record.upstream == ""


def test_a_refused_connection_is_told_from_a_broken_one() -> None:
    refused = read_record(entry("10.0.0.1:8000", 503, "upstream_connection_failure"))
    broken = read_record(entry("10.0.0.1:8000", 503, "upstream_connection_termination"))
    assert (refused.refused, refused.broken) == (True, True)
    assert (broken.refused, broken.broken) == (False, True)


def test_figures_are_read() -> None:
    record = read_record(entry(request_bytes=4096, first_byte_s=0.25, last_byte_s=1.5))
    assert record.upstream == "10.0.0.1:8000"
    assert record.client == "10.9.0.1"
    assert (record.first_byte_s, record.last_byte_s, record.request_bytes) == (0.25, 1.5, 4096)
    assert record.cluster == "pool/m"
    assert not record.streamed
    assert read_record(entry(content_type="text/event-stream; charset=utf-8")).streamed


def test_what_was_not_reached_is_absent_and_not_zero() -> None:
    record = read_record(entry(first_byte_s=None, last_byte_s=None))
    assert record.first_byte_s is None
    assert record.last_byte_s is None


def test_impossible_figures_are_absent() -> None:
    made = entry()
    made.common_properties.time_to_first_upstream_rx_byte.seconds = -5
    made.common_properties.time_to_last_upstream_rx_byte.seconds = 1 << 40
    made.common_properties.upstream_cluster = "x" * 100_000
    made.common_properties.downstream_remote_address.socket_address.address = "y" * 100_000
    made.request.request_body_bytes = (1 << 64) - 1
    made.response.response_code.value = 4_000_000_000
    record = read_record(made)
    assert record.first_byte_s is None
    assert record.last_byte_s is None
    assert (record.cluster, record.client, record.request_bytes, record.status) == ("", "", 0, 0)


@pytest.mark.parametrize("port", [0, 65536, 4_000_000_000])
def test_an_upstream_must_have_a_port(port: int) -> None:
    made = entry()
    made.common_properties.upstream_remote_address.socket_address.port_value = port
    assert read_record(made).upstream == ""


def test_one_endpoint_has_one_spelling() -> None:
    assert join_address("2001:db8:0:0:0:0:0:1", 80) == join_address("2001:db8::1", 80) == "[2001:db8::1]:80"
    assert join_address("z" * 1000, 80) == ""
    assert join_address("1:2", 80) == ""


@given(st.binary(max_size=400))
def test_no_bytes_that_parse_are_refused(data: bytes) -> None:
    made = accesslog_pb2.HTTPAccessLogEntry()
    try:
        made.ParseFromString(data)
    except DecodeError:
        return
    _check(made)


@given(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, (1 << 32) - 1),
    st.text(max_size=60),
)
def test_no_value_leads_out_of_bounds(seconds: int, nanos: int, number: int, text: str) -> None:
    made = entry()
    common = made.common_properties
    common.time_to_first_upstream_rx_byte.seconds = seconds
    common.time_to_first_upstream_rx_byte.nanos = nanos
    common.upstream_remote_address.socket_address.port_value = number
    common.upstream_remote_address.socket_address.address = text
    made.response.response_code.value = number
    made.request.request_body_bytes = number
    _check(made)


def _check(made: object) -> None:
    record = read_record(made)
    assert record.first_byte_s is None or 0.0 <= record.first_byte_s <= MAX_SECONDS
    assert record.last_byte_s is None or 0.0 <= record.last_byte_s <= MAX_SECONDS
    assert 0 <= record.status < 1000
    assert len(record.upstream) < 80
    assert len(record.client) <= 64
    assert (record.outcome is Outcome.UNROUTED) <= (record.upstream == "")


def test_loads_are_read_and_impossible_ones_left_out() -> None:
    made = load_report(("10.0.0.1:8000", 5, 2), ("[2001:db8::1]:80", 1, 0))
    stats = made.cluster_stats[0].upstream_locality_stats[0].upstream_endpoint_stats
    stats.add(total_issued_requests=7)
    stats.add(total_issued_requests=1 << 60).address.CopyFrom(stats[0].address)
    assert list(read_loads(made)) == [Load("10.0.0.1:8000", 5, 2), Load("[2001:db8::1]:80", 1, 0)]
