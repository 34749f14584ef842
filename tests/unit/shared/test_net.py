"""Addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_shared.net import HostPort, parse_host_port


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:80", "127.0.0.1", 80), ("[::1]:9", "::1", 9), ("gw.example:0", "gw.example", 0)],
)
def test_addresses_are_read_and_written_back(text: str, host: str, port: int) -> None:
    assert parse_host_port(text) == HostPort(host, port)
    assert str(parse_host_port(text)) == text


@pytest.mark.parametrize("text", ["", "host", ":80", "host:", "host:port", "host:65536", "host:-1", "host:٣"])
def test_what_is_no_address_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write host:port"):
        parse_host_port(text)


def test_bare_ipv6_asks_for_brackets() -> None:
    with pytest.raises(ValueError, match="brackets"):
        parse_host_port("::1:80")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("gw", False),
    ],
)
def test_loopback_is_known(host: str, loopback: bool) -> None:
    assert HostPort(host, 1).is_loopback is loopback


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = parse_host_port(text)
    except ValueError:
        return
    assert parse_host_port(str(read)) == read
