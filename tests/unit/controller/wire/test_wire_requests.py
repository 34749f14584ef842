"""Requests by their header fields, and how a call ends."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.wire.messages import CallFault, Status
from headrace_controller.wire.requests import (
    MalformedError,
    NotGrpcError,
    Request,
    ending,
    read_request,
)
from tests.support.wire import OPENING, PATH

Fields = list[tuple[str, str]]


def but(**others: str | None) -> Fields:
    """The usual fields with others; None leaves one away."""
    wanted = {name.replace("_", "-"): value for name, value in others.items()}
    found = {name.lstrip(":"): (name, value) for name, value in OPENING}
    for name, value in wanted.items():
        if value is None:
            del found[name]
        else:
            found[name] = (found[name][0] if name in found else name, value)
    return list(found.values())


def test_a_call_says_its_path_patience_and_encoding() -> None:
    assert read_request(OPENING) == Request(PATH, "identity", None)
    assert read_request(but(grpc_timeout="250m", grpc_encoding="gzip")) == Request(PATH, "gzip", 0.25)
    assert read_request(but(content_type="application/grpc+proto")).path == PATH


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2H", 7200.0), ("3M", 180.0), ("4S", 4.0), ("5u", 5e-6), ("99999999n", 0.099999999)],
)
def test_time_outs_have_units(text: str, seconds: float) -> None:
    assert read_request(but(grpc_timeout=text)).timeout_s == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "1", "1s", "-1S", "123456789S", "1.5S", "\u0661S"])
def test_a_time_out_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(CallFault, match="grpc-timeout"):
        read_request(but(grpc_timeout=text))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (but(method="GET"), 405),
        (but(content_type="text/html"), 415),
        (but(content_type=None), 415),
        (but(content_type="application/grpc-web"), 415),
    ],
)
def test_what_is_no_grpc_gets_an_http_status(fields: Fields, status: int) -> None:
    with pytest.raises(NotGrpcError) as caught:
        read_request(fields)
    assert caught.value.status == status


@pytest.mark.parametrize(
    "fields",
    [
        but(path=None),
        but(method=None),
        but(scheme=None),
        but(connection="close"),
        but(transfer_encoding="chunked"),
        [*OPENING, (":path", "/again")],
        [*OPENING, (":late", "x")],
        [*OPENING, ("Upper", "x")],
        [*OPENING, ("", "x")],
        [(":unknown", "x"), *OPENING],
        [OPENING[0], OPENING[0], *OPENING[1:]],
        [],
    ],
)
def test_what_is_no_request_is_malformed(fields: Fields) -> None:
    with pytest.raises(MalformedError):
        read_request(fields)


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=12))
def test_any_fields_are_read_or_refused(fields: Fields) -> None:
    for tried in (fields, [*OPENING, *fields]):
        try:
            assert read_request(tried).path == PATH
        except (MalformedError, NotGrpcError, CallFault):
            continue


@given(st.text(max_size=200))
def test_details_travel_whole(details: str) -> None:
    found = dict(ending(Status.ABORTED, details.encode("utf-8", "ignore").decode(), opened=True))
    assert found["grpc-status"] == "10"
    sent = found.get("grpc-message", "")
    assert sent.isascii()
    assert sent.isprintable()
    assert unquote(sent) == details.encode("utf-8", "ignore").decode()


def test_an_end_without_answers_has_the_opening_fields_too() -> None:
    assert dict(ending(Status.OK, "", opened=False))[":status"] == "200"
    assert ending(Status.OK, "", opened=True) == [("grpc-status", "0")]
