"""Who a peer is: this machine or another, and the names of its certificate."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_controller.wire.call import Peer
from headrace_controller.wire.protocol import is_local, names_of, peer_of


class Transport(asyncio.BaseTransport):
    def __init__(self, **known: Any) -> None:
        super().__init__(known)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("", False),
        ("localhost.evil", False),
    ],
)
def test_peers_of_this_machine_are_known(host: str, local: bool) -> None:
    assert is_local(host) is local


def test_addresses_are_shown_as_people_write_them() -> None:
    assert peer_of(Transport(peername=("10.0.0.1", 5))) == Peer("10.0.0.1:5")
    assert peer_of(Transport(peername=("::1", 5, 0, 0))) == Peer("[::1]:5", local=True)
    assert peer_of(Transport(peername="")) == Peer("unix", local=True)


def test_a_certificate_names_by_its_common_and_its_alternative_names() -> None:
    found = {
        "subject": ((("organizationName", "o"),), (("commonName", "n1"),)),
        "subjectAltName": (
            ("DNS", "n1.site"),
            ("DirName", ((("commonName", "directory"),),)),
            ("IP Address", "10.0.0.1"),
        ),
    }
    assert names_of(found) == ("n1", "n1.site", "10.0.0.1")


@pytest.mark.parametrize("none", [None, {}])
def test_a_peer_without_a_certificate_has_no_name(none: Any) -> None:
    assert names_of(none) == ()
