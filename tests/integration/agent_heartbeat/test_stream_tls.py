"""The stream under TLS: who the server is, who the agent is, and what is said when they disagree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme

from headrace_agent.heartbeat.stream import ControllerStream
from headrace_agent.settings import ControllerSettings
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsError, TlsSettings, server_credentials
from tests.integration.agent_heartbeat.controller import Controller, Heard, Report, streaming, until


@pytest.fixture
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_controller(ca: trustme.CA, tmp_path: Path) -> AsyncIterator[Controller]:
    """A controller that demands and checks its agents' certificates."""
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair(ca, tmp_path, "server", "127.0.0.1")
    server = Controller()
    tls = TlsSettings(ca=tmp_path / "ca.pem", cert=tmp_path / "server.pem", key=tmp_path / "server.key")
    await server.start(server_credentials(tls, "telemetry_tls"))
    yield server
    await server.kill()


def pair(ca: trustme.CA, folder: Path, name: str, identity: str) -> None:
    """Write NAME.pem and NAME.key."""
    issued = ca.issue_cert(identity, common_name=identity)
    issued.private_key_pem.write_to_path(folder / f"{name}.key")
    for i, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(folder / f"{name}.pem", append=i > 0)


async def test_mutual_tls_shows_the_controller_who_speaks(
    tls_controller: Controller, ca: trustme.CA, tmp_path: Path
) -> None:
    pair(ca, tmp_path, "agent", "host-1.example")
    tls = TlsSettings(ca=tmp_path / "ca.pem", cert=tmp_path / "agent.pem", key=tmp_path / "agent.key")
    async with streaming(tls_controller.port, tls=tls) as stream:
        await until(lambda: stream.connected)
        await until(lambda: bool(tls_controller.of_kind("telemetry")))
    assert b"host-1.example" in tls_controller.peers[-1]["x509_common_name"]


def assert_about_tls(logs: list[Any]) -> None:
    assert logs[0]["event"] == "controller unreachable"
    assert "TLS" in logs[0]["remedy"], logs[0]


async def test_an_agent_without_a_certificate_is_not_let_in(
    tls_controller: Controller, tmp_path: Path
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with streaming(tls_controller.port, tls=TlsSettings(ca=tmp_path / "ca.pem")) as stream:
            await until(lambda: bool(logs))
            assert not stream.connected
    assert tls_controller.streams == []
    assert logs[0]["event"] == "controller unreachable"


async def test_a_controller_of_a_strange_authority_is_not_believed(
    tls_controller: Controller, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    with structlog.testing.capture_logs() as logs:
        async with streaming(tls_controller.port, tls=TlsSettings(ca=tmp_path / "other.pem")) as stream:
            await until(lambda: bool(logs))
            assert not stream.connected
    assert_about_tls(logs)


async def test_plain_against_tls_says_so(tls_controller: Controller) -> None:
    with structlog.testing.capture_logs() as logs:
        async with streaming(tls_controller.port):
            await until(lambda: bool(logs))
    assert_about_tls(logs)


async def test_tls_against_plain_says_so(controller: Controller, ca: trustme.CA, tmp_path: Path) -> None:
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    with structlog.testing.capture_logs() as logs:
        async with streaming(controller.port, tls=TlsSettings(ca=tmp_path / "ca.pem")):
            await until(lambda: bool(logs))
    assert_about_tls(logs)


async def test_renewed_files_are_read_at_the_next_attempt(
    tls_controller: Controller, ca: trustme.CA, tmp_path: Path
) -> None:
    """A certificate that expires is replaced on disk; the agent need not restart."""
    agent_ca = tmp_path / "agent-ca.pem"
    trustme.CA().cert_pem.write_to_path(agent_ca)
    pair(ca, tmp_path, "agent", "host-1.example")
    tls = TlsSettings(ca=agent_ca, cert=tmp_path / "agent.pem", key=tmp_path / "agent.key")
    with structlog.testing.capture_logs() as logs:
        async with streaming(tls_controller.port, tls=tls) as stream:
            await until(lambda: bool(logs))
            ca.cert_pem.write_to_path(agent_ca)
            await until(lambda: stream.connected)


def test_files_that_cannot_be_used_are_refused_at_the_start(tmp_path: Path) -> None:
    settings = ControllerSettings(
        address=HostPort("127.0.0.1", 1), tls=TlsSettings(ca=tmp_path / "missing.pem")
    )
    with pytest.raises(TlsError, match=r"missing\.pem"):
        ControllerStream(settings, Report(), Heard().handlers(), SystemClock())
