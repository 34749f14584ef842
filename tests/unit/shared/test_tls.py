"""TLS settings: what is missing or unreadable is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from headrace_shared.tls import TlsError, TlsSettings, channel_credentials, server_credentials


@pytest.fixture
def files(tmp_path: Path) -> TlsSettings:
    authority = trustme.CA()
    pair = authority.issue_cert("node-1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair.private_key_pem.write_to_path(tmp_path / "key.pem")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    return TlsSettings(ca=tmp_path / "ca.pem", cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")


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
