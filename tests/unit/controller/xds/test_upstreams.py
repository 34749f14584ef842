"""How clusters speak with engines: TLS, keys and health checks, from the settings' files on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trustme
from envoy.config.cluster.v3 import cluster_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2

from headrace_controller.projection.plan import PLAIN, PoolShape
from headrace_controller.settings import EnvoySettings, PoolSettings, UpstreamTlsSettings
from headrace_controller.xds.resources.clusters import build_cluster
from headrace_controller.xds.upstreams import PLAIN_UPSTREAM, Upstream, UpstreamTls, read_upstreams
from headrace_shared.tls import TlsError


def cluster(shape: PoolShape = PLAIN, upstream: Upstream = PLAIN_UPSTREAM) -> cluster_pb2.Cluster:
    return build_cluster("pool/m", EnvoySettings(), None, shape, upstream)


def context_in(socket: Any) -> tls_pb2.UpstreamTlsContext:
    made = tls_pb2.UpstreamTlsContext()
    assert socket.typed_config.Unpack(made)
    return made


def test_a_plain_pool_has_no_transport_of_its_own() -> None:
    made = cluster()
    assert not made.HasField("transport_socket")
    assert not made.transport_socket_matches


def test_cells_that_speak_tls_are_told_from_those_that_do_not() -> None:
    made = cluster(PoolShape(tls=True))
    assert not made.HasField("transport_socket")
    (match,) = made.transport_socket_matches
    assert dict(match.match) == {"headrace.tls": True}
    assert not context_in(match.transport_socket).common_tls_context.HasField("validation_context")


def test_a_pool_with_an_authority_is_reached_by_nothing_else() -> None:
    tls = UpstreamTls(ca="CA", cert="CERT", key="KEY", server_name="engine.example")
    made = cluster(PoolShape(tls=True), Upstream(tls))
    assert not made.transport_socket_matches
    context = context_in(made.transport_socket)
    assert context.sni == "engine.example"
    common = context.common_tls_context
    assert common.validation_context.trusted_ca.inline_string == "CA"
    (name,) = common.validation_context.match_typed_subject_alt_names
    assert name.matcher.exact == "engine.example"
    (pair,) = common.tls_certificates
    assert (pair.certificate_chain.inline_string, pair.private_key.inline_string) == ("CERT", "KEY")


def test_health_is_asked_where_the_pool_says_and_only_5xx_is_unwell() -> None:
    (check,) = cluster(PoolShape(health_path="/v2/health/ready")).health_checks
    assert check.http_health_check.path == "/v2/health/ready"
    (well,) = check.http_health_check.expected_statuses
    assert (well.start, well.end) == (200, 500)
    (connects,) = cluster(PoolShape(health_path="")).health_checks
    assert connects.HasField("tcp_health_check")


def test_a_key_goes_with_the_health_check() -> None:
    (check,) = cluster(upstream=Upstream(api_key="50%")).health_checks
    (header,) = check.http_health_check.request_headers_to_add
    assert (header.header.key, header.header.value) == ("authorization", "Bearer 50%%")


def test_the_files_of_pools_are_read(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, key = tmp_path / "ca.pem", tmp_path / "key"
    authority.cert_pem.write_to_path(ca)
    key.write_text("secret\n")
    pools = {
        "a": PoolSettings(tls=UpstreamTlsSettings(ca=ca), api_key_file=key),
        "b": PoolSettings(),
        "c": PoolSettings(tls=UpstreamTlsSettings()),
    }
    found = read_upstreams(pools)
    assert found == {
        "a": Upstream(UpstreamTls(ca=authority.cert_pem.bytes().decode()), "secret"),
        "c": Upstream(UpstreamTls()),
    }


@pytest.mark.parametrize("content", [None, "", "two words", "x\ny", "\x00", "ü", "x" * 20_000])
def test_a_key_that_cannot_be_used_is_named_with_its_remedy(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(TlsError, match=r"pools\.m\.api_key_file: .*key") as refusal:
        read_upstreams({"m": PoolSettings(api_key_file=path)})
    assert not content or content not in str(refusal.value) or len(content) < 3


def test_a_certificate_that_is_none_is_named_with_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    with pytest.raises(TlsError, match=r"pools\.m\.tls\.ca: .* holds no PEM block"):
        read_upstreams({"m": PoolSettings(tls=UpstreamTlsSettings(ca=path))})
