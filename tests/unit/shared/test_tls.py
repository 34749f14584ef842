"""TLS settings: what is missing or unreadable is named."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from headrace_shared.tls import (
    ServerIdentity,
    TlsError,
    TlsSettings,
    channel_credentials,
    server_credentials,
)


@pytest.fixture
def files(tmp_path: Path) -> TlsSettings:
    return issue(trustme.CA(), tmp_path)


def issue(authority: trustme.CA, folder: Path) -> TlsSettings:
    pair = authority.issue_cert("node-1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    pair.private_key_pem.write_to_path(folder / "key.pem")
    pair.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return TlsSettings(ca=folder / "ca.pem", cert=folder / "cert.pem", key=folder / "key.pem")


def test_good_files_give_credentials(files: TlsSettings) -> None:
    assert server_credentials(files, "listen.tls") is not None
    assert channel_credentials(files, "controllers[0].tls") is not None


def test_a_server_needs_its_pair(files: TlsSettings) -> None:
    with pytest.raises(TlsError, match=r"listen\.tls: a server needs both cert and key"):
        server_credentials(TlsSettings(ca=files.ca), "listen.tls")


def test_a_client_needs_an_authority_and_a_whole_pair(files: TlsSettings) -> None:
    with pytest.raises(TlsError, match="needs ca"):
        channel_credentials(TlsSettings(), "tls")
    with pytest.raises(TlsError, match="both cert and key"):
        channel_credentials(TlsSettings(ca=files.ca, cert=files.cert), "tls")


def test_files_that_are_absent_or_no_pem_are_named(files: TlsSettings, tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"tls\.ca: .*No such file"):
        channel_credentials(TlsSettings(ca=tmp_path / "none.pem"), "tls")
    (tmp_path / "text.pem").write_text("hello")
    with pytest.raises(TlsError, match=r"tls\.ca: .*holds no PEM block"):
        channel_credentials(TlsSettings(ca=tmp_path / "text.pem"), "tls")


def test_a_pair_that_does_not_belong_together_is_named(files: TlsSettings, tmp_path: Path) -> None:
    trustme.CA().issue_cert("node-2").private_key_pem.write_to_path(tmp_path / "key.pem")
    with pytest.raises(TlsError, match=r"tls: cert .* and key .*key\.pem do not work together"):
        ServerIdentity(files, "tls")


def test_renewed_files_are_handed_out_once_and_unusable_ones_never(
    files: TlsSettings, tmp_path: Path
) -> None:
    identity = ServerIdentity(files, "tls")
    identity.read()
    assert identity._fetch() is None, "nothing changed"
    issue(trustme.CA(), tmp_path)
    identity.read()
    assert identity._fetch() is not None
    assert identity._fetch() is None
    (tmp_path / "cert.pem").write_text("half writ")
    identity.read()
    assert identity._fetch() is None, "those before serve on"
    issue(trustme.CA(), tmp_path)
    identity.read()
    assert identity._fetch() is not None


def test_a_context_speaks_http_2_follows_the_files_and_demands_what_they_say(
    files: TlsSettings, tmp_path: Path
) -> None:
    identity = ServerIdentity(files, "tls")
    first = identity.context()
    assert first.verify_mode is ssl.CERT_REQUIRED
    assert len(first.get_ca_certs()) == 1
    identity.read()
    assert identity.context() is first, "nothing changed"
    issue(trustme.CA(), tmp_path)
    identity.read()
    renewed = identity.context()
    assert renewed is not first
    (tmp_path / "cert.pem").write_text("half writ")
    identity.read()
    assert identity.context() is renewed, "those before serve on"
    issue(trustme.CA(), tmp_path)
    without = ServerIdentity(TlsSettings(cert=files.cert, key=files.key), "tls")
    assert without.context().verify_mode is ssl.CERT_NONE
