"""The kernel's tables of TCP sockets, as text."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.processes.sockets import (
    Listener,
    parse_ipv6_addresses,
    parse_listeners,
    parse_local_addresses,
    unmapped,
)

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(local: str, state: str = "0A", uid: int = 1000, inode: int = 4711) -> bytes:
    rest = "00000000:00000000 00:00000000 00000000"
    line = f"   0: {local} 00000000:0000 {state} {rest}  {uid}        0 {inode} 1 ffff 100 0 0 10 0\n"
    return line.encode()


pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the rows are a little-endian machine's")


def test_listening_sockets_of_both_families() -> None:
    assert parse_listeners(HEAD + row("0100007F:1F40")) == [Listener("127.0.0.1", 8000, 1000, 4711)]
    assert parse_listeners(HEAD + row("00000000000000000000000000000000:1F40")) == [
        Listener("::", 8000, 1000, 4711)
    ]
    assert parse_listeners(HEAD + row("00000000000000000000000001000000:0050", uid=0)) == [
        Listener("::1", 80, 0, 4711)
    ]


def test_connections_are_no_listeners() -> None:
    assert parse_listeners(HEAD + row("0100007F:1F40", state="01") + row("0100007F:1F41", state="06")) == []


@pytest.mark.parametrize(
    "spoilt", [row("0100007F"), row("XYZ:1F40"), row("01:1F40"), b"\n", b"   0:\n", b"\xff\n"]
)
def test_a_row_that_is_not_understood_costs_only_itself(spoilt: bytes) -> None:
    assert len(parse_listeners(HEAD + spoilt + row("0100007F:1F40"))) == 1


@given(st.binary(max_size=300))
def test_no_text_breaks_it(text: bytes) -> None:
    for found in parse_listeners(HEAD + text):
        assert found.port >= 0


@pytest.mark.parametrize(
    ("listens", "asked", "serves"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "10.0.0.1", False),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("10.0.0.1", None, True),
        ("10.0.0.1", "no address", False),
    ],
)
def test_whom_a_listener_serves(listens: str, asked: str | None, serves: bool) -> None:
    assert Listener(listens, 8000, 0, 1).serves(asked) is serves


TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 172.17.0.0/16 2 0 2
        |-- 172.17.0.0
           /16 link UNICAST
        |-- 172.17.0.2
           /32 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
        |-- 172.17.255.255
           /32 link BROADCAST
"""


def test_own_addresses_of_a_namespace() -> None:
    assert parse_local_addresses(TRIE) == {"172.17.0.2"}
    loopback, other = "0" * 31 + "1", "fd" + "0" * 29 + "a"
    table = f"{loopback} 01 80 10 80 lo\n{other} 02 40 00 80 eth0\nx\n"
    assert parse_ipv6_addresses(table) == {"fd00::a"}


@given(st.text(max_size=200))
def test_no_address_table_breaks_it(text: str) -> None:
    parse_local_addresses(text)
    parse_ipv6_addresses(text)


def test_unmapped_leaves_what_it_does_not_know() -> None:
    assert unmapped("::ffff:10.0.0.1") == "10.0.0.1"
    assert unmapped("engine") == "engine"
