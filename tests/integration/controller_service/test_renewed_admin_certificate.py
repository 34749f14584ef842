"""The operators' pages follow their TLS files while the controller runs, and take no broken ones."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from structlog.testing import capture_logs

from headrace_controller import service
from tests.integration.controller_ingest.test_renewed_certificate import write
from tests.integration.controller_service.running import serving, settings_of, until

FILES = "cert: {0}/cert.pem, key: {0}/key.pem"


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RENEW_S", 0.02)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def shown(authority: trustme.CA, address: Any) -> tuple[str, str | None]:
    """The name in the certificate that a new connection is shown, and the protocol agreed with it, as a
    browser asks for it."""
    context = trusting(authority)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection((address.host, address.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=address.host) as secured,
    ):
        found: Any = secured.getpeercert()
        return dict(part[0] for part in found["subject"])["commonName"], secured.selected_alpn_protocol()


async def test_renewed_files_serve_new_connections_and_broken_ones_none(
    tmp_path: Path, logs: list[Any]
) -> None:
    authority = trustme.CA()
    write(authority, tmp_path, "first")
    settings = settings_of(tls=f"admin_tls: {{{FILES.format(tmp_path)}}}")

    async def shows(name: str) -> bool:
        return await asyncio.to_thread(shown, authority, settings.listen.admin) == (name, "http/1.1")

    async def refused() -> bool:
        return any("holds no PEM block" in line.get("error", "") for line in logs)

    async with serving(settings, tls=trusting(authority)) as running:
        assert await shows("first")
        write(authority, tmp_path, "second")
        await until(lambda: shows("second"))
        assert (await running.get("/healthz"))[0] == 200, "the open connection stays"
        (tmp_path / "cert.pem").write_text("half writ")
        await until(refused)
        assert await shows("second")
        write(authority, tmp_path, "third")
        await until(lambda: shows("third"))


async def test_a_renewed_authority_decides_who_is_let_in(tmp_path: Path) -> None:
    """With `ca` a client must show a certificate; the authority of before opens nothing any more."""
    authority, others = trustme.CA(), [trustme.CA(), trustme.CA()]
    write(authority, tmp_path, "controller")
    others[0].cert_pem.write_to_path(tmp_path / "ca.pem")
    settings = settings_of(tls=f"admin_tls: {{{FILES.format(tmp_path)}, ca: {tmp_path}/ca.pem}}")
    clients = [trusting(authority), trusting(authority)]
    for each, client in zip(others, clients, strict=True):
        each.issue_cert("operator").configure_cert(client)
    async with serving(settings, tls=clients[0]) as running:
        asking = (*clients, trusting(authority))
        assert [await opens(running.admin, each) for each in asking] == [True, False, False]
        others[1].cert_pem.write_to_path(tmp_path / "ca.pem")
        await until(lambda: opens(running.admin, clients[1]))
        assert not await opens(running.admin, clients[0])


async def opens(url: str, context: ssl.SSLContext) -> bool:
    """Whether a new connection is served."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"{url}/healthz", ssl=context) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False
