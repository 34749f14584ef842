"""TLS files of an engine: what is taken, and what is said of those that cannot be."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
import trustme
from pydantic import ValidationError
from structlog.testing import capture_logs

from headrace_agent.collectors.app.http.trust import Trust, engine_trust, explain
from headrace_agent.settings import CellSettings, EngineTlsSettings
from headrace_shared.tls import TlsError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An authority, two certificates with their keys, and what is none of these."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name in ("one", "two"):
        issued = ca.issue_cert(name)
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    (tmp_path / "text").write_text("no certificate")
    (tmp_path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    return tmp_path


def trust(folder: Path, **files: str) -> Trust:
    tls = EngineTlsSettings.model_validate({name: folder / file for name, file in files.items()})
    return engine_trust(CellSettings(id="c1", url="https://127.0.0.1:8000", tls=tls))


def test_files_that_fit_are_taken(folder: Path) -> None:
    made = trust(folder, ca="ca.pem", cert="one.pem", key="one.key")
    assert made.context().verify_mode is ssl.CERT_REQUIRED
    assert made.context() is made.context(), "not read anew for each connection"
    assert made.shows_itself
    assert not trust(folder, ca="ca.pem").shows_itself


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"ca": "none.pem"}, r"cells \(c1\): tls\.ca: .*none\.pem: No such file.*; give a readable PEM file"),
        ({"ca": "text"}, r"tls\.ca: .*text holds no PEM block"),
        ({"ca": "broken.pem"}, r"tls\.ca: .*broken\.pem: .*; give the certificate of the authority"),
        ({"cert": "none.pem", "key": "one.key"}, r"tls\.cert: .*none\.pem"),
        ({"cert": "one.pem", "key": "none.key"}, r"tls\.key: .*none\.key"),
        ({"cert": "one.pem", "key": "two.key"}, r"tls\.key: .*two\.key cannot be used with cert .*one\.pem"),
        ({"cert": "one.key", "key": "one.key"}, r"give the key of this certificate"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_their_remedy(
    folder: Path, files: dict[str, str], said: str
) -> None:
    with pytest.raises(TlsError, match=said):
        trust(folder, **files)


def test_renewed_files_are_read_and_spoilt_ones_are_not_taken(folder: Path) -> None:
    made = trust(folder, ca="ca.pem")
    first = made.context()
    (folder / "ca.pem").write_text("half")
    with capture_logs() as logs:
        assert made.context() is first
        assert made.context() is first
    assert len(logs) == 1, "said once"
    trustme.CA().cert_pem.write_to_path(folder / "ca.pem")
    renewed = made.context()
    assert renewed is not first
    os.unlink(folder / "ca.pem")
    assert made.context() is renewed


def test_without_settings_the_systems_authorities_are_trusted() -> None:
    assert Trust().context() is Trust().context()
    assert Trust().server_name is None


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ({"url": "http://127.0.0.1:8000", "tls": {"ca": "/ca.pem"}}, "the url is not https; write https://"),
        ({"url": "https://127.0.0.1:8000", "tls": {"cert": "/c.pem"}}, "give both cert and key, or neither"),
        ({"url": "https://127.0.0.1:8000", "tls": {"server_name": ""}}, "server_name"),
        ({"url": "https://127.0.0.1:8000", "tls": {"ca_file": "/ca.pem"}}, "ca_file"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(cell: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CellSettings.model_validate({"id": "c1", **cell})


def test_only_failed_handshakes_have_a_remedy() -> None:
    assert explain(OSError("no route")) == ""
    assert explain(ssl.SSLError(1, "something else")) == ""
