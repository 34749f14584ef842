"""Addresses as people write them."""

from __future__ import annotations

import errno
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_shared.net import CannotListenError, HostPort, PortInUseError, explain_listen, parse_host_port


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


HERE = HostPort("10.99.0.1", 80)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("error", "why", "remedy"),
    [
        (_os_error(errno.EADDRINUSE), "already in use", "ss -ltnp 'sport = :80'"),
        (_os_error(errno.EADDRNOTAVAIL), "10.99.0.1 is not an address of this machine", "`ip address`"),
        (_os_error(errno.EAFNOSUPPORT), "not an address of this machine", "`ip address`"),
        (_os_error(errno.EACCES), "may not listen there", "a port from 1024 on"),
        (_os_error(errno.EPERM), "may not listen there", "CAP_NET_BIND_SERVICE"),
        (socket.gaierror(-2, "Name or service not known"), "the host name '10.99.0.1' is not known", "an IP"),
        (_os_error(errno.ENOBUFS), "No buffer space", "choose another address"),
    ],
)
def test_why_an_address_cannot_be_listened_on_is_told_apart(error: OSError, why: str, remedy: str) -> None:
    """An operator told that a port is in use looks for a program that is not there."""
    said = explain_listen("metrics_listen", HERE, error)
    assert isinstance(said, CannotListenError)
    assert isinstance(said, PortInUseError) is (error.errno == errno.EADDRINUSE)
    assert str(said).startswith("metrics_listen: ")
    assert "10.99.0.1:80" in str(said)
    assert why in str(said)
    assert remedy in str(said)
