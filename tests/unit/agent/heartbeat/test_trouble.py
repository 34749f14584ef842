"""Errors to words that say what to do."""

from __future__ import annotations

import grpc
import pytest

from headrace_agent.heartbeat.conversation import NoAnswerError
from headrace_agent.heartbeat.trouble import Trouble, explain
from headrace_shared.tls import TlsError


def status(code: grpc.StatusCode, details: str) -> Trouble:
    nothing = grpc.aio.Metadata()
    return explain(grpc.aio.AioRpcError(code, nothing, nothing, details=details))


def test_the_kind_of_trouble_does_not_vary_with_its_details() -> None:
    """What is said once per change must not change with a port number or an address family."""
    first = status(grpc.StatusCode.UNAVAILABLE, "ipv4:10.0.0.5:18000: Connection refused (111)")
    second = status(grpc.StatusCode.UNAVAILABLE, "ipv6:[::1]:18000: No route to host")
    assert first.key == second.key
    assert "refused" in first.why


@pytest.mark.parametrize(
    ("details", "about_tls"),
    [
        ("Ssl handshake failed: CERTIFICATE_VERIFY_FAILED", True),
        ("Socket closed", True),
        ("Failed to connect to remote host: Connection refused", False),
    ],
)
def test_tls_is_named_where_it_is_likely(details: str, about_tls: bool) -> None:
    assert ("TLS" in status(grpc.StatusCode.UNAVAILABLE, details).remedy) is about_tls


def test_a_refusal_carries_the_controllers_words() -> None:
    trouble = status(grpc.StatusCode.FAILED_PRECONDITION, "node n: an agent that started later is connected")
    assert "started later" in trouble.why
    assert "refuses" in trouble.remedy


def test_silence_files_and_the_system() -> None:
    assert "Welcome" in explain(NoAnswerError("no Welcome within 5 s")).why
    assert "ca.pem" in explain(TlsError("tls.ca: ca.pem: No such file")).why
    assert explain(OSError(24, "Too many open files")).why
    assert len(status(grpc.StatusCode.UNAVAILABLE, "x" * 10_000).why) < 400
