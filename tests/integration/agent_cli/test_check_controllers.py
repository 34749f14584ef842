"""What `check` finds of a controller: real sockets, real TLS, a real gRPC server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import trustme

from headrace_agent.collectors.names import Resolver
from headrace_agent.commands.check.controllers import check_controller
from headrace_agent.commands.check.findings import Finding, Level
from headrace_agent.settings import ControllerSettings
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsSettings, server_credentials
from tests.integration.agent_cli.program import http_server, silent_server

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def issue(authority: trustme.CA, folder: Path, *names: str) -> TlsSettings:
    """A certificate for these names, with its key and the authority's own certificate."""
    folder.mkdir(exist_ok=True)
    leaf = authority.issue_cert(*names)
    leaf.private_key_pem.write_to_path(folder / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return TlsSettings(ca=folder / "ca.pem", cert=folder / "cert.pem", key=folder / "key.pem")


@asynccontextmanager
async def grpc_server(tls: TlsSettings | None = None) -> AsyncIterator[int]:
    """A gRPC server that serves nothing."""
    server = grpc.aio.server()
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", server_credentials(tls, "test"))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


async def found(
    port: int, tls: TlsSettings | None = None, host: str = "127.0.0.1", timeout_s: float = 10
) -> Finding:
    settings = ControllerSettings(address=HostPort(host, port), tls=tls)
    (finding,) = await check_controller(settings, Resolver(CLOCK), timeout_s, CLOCK)
    assert finding.about == f"controller {settings.address}"
    assert finding.level is Level.OK or finding.remedy
    return finding


async def test_a_controller_without_tls_and_by_name() -> None:
    async with grpc_server() as port:
        assert (await found(port)).level is Level.OK
        assert (await found(port, host="localhost")).level is Level.OK


async def test_a_controller_with_mutual_tls(authority: trustme.CA, tmp_path: Path) -> None:
    async with grpc_server(issue(authority, tmp_path / "server", "127.0.0.1")) as port:
        finding = await found(port, issue(authority, tmp_path / "agent", "host-1"))
    assert (finding.level, "over TLS" in finding.what) == (Level.OK, True)


async def test_tls_on_one_side_only(authority: trustme.CA, tmp_path: Path) -> None:
    tls = issue(authority, tmp_path, "127.0.0.1")
    async with grpc_server(tls) as with_, grpc_server() as without:
        for finding in (await found(with_), await found(without, tls)):
            assert finding.level is Level.ERROR
            assert "tls on both sides or on neither" in finding.remedy


async def test_an_authority_that_did_not_sign_and_a_name_that_is_another(
    authority: trustme.CA, tmp_path: Path
) -> None:
    async with grpc_server(issue(authority, tmp_path / "server", "127.0.0.1")) as port:
        stranger = issue(trustme.CA(), tmp_path / "stranger", "host-1")
        finding = await found(port, stranger)
    assert "its certificate is not taken" in finding.what
    async with grpc_server(issue(authority, tmp_path / "other", "elsewhere.example")) as port:
        finding = await found(port, issue(authority, tmp_path / "agent", "host-1"))
    assert "its certificate is not taken" in finding.what
    assert "127.0.0.1" in finding.what
    assert "ca name the authority" in finding.remedy


async def test_an_agent_that_the_controller_does_not_trust(authority: trustme.CA, tmp_path: Path) -> None:
    async with grpc_server(issue(authority, tmp_path / "server", "127.0.0.1")) as port:
        own = issue(authority, tmp_path / "agent", "host-1")
        bare = TlsSettings(ca=own.ca)
        finding = await found(port, bare)
    assert finding.level is Level.ERROR, "it asks for a certificate that this agent does not show"


async def test_files_that_cannot_be_used(authority: trustme.CA, tmp_path: Path) -> None:
    own, other = issue(authority, tmp_path / "a", "a"), issue(authority, tmp_path / "b", "b")
    missing = own.model_copy(update={"ca": tmp_path / "none.pem"})
    mixed = own.model_copy(update={"key": other.key})
    for tls, words in ((missing, "none.pem"), (mixed, "give PEM files, with the key that belongs")):
        finding = await found(1, tls)
        assert finding.level is Level.ERROR
        assert words in finding.what


async def test_what_is_no_controller() -> None:
    async with http_server({}) as port:
        assert "an HTTP server answers" in (await found(port)).what
    assert "connection refused" in (await found(port)).what
    async with silent_server() as port:
        finding = await found(port, timeout_s=0.3)
    assert "no answer within 0.3 s" in finding.what
    assert "no-such-host.invalid" in (await found(1, host="no-such-host.invalid")).what
