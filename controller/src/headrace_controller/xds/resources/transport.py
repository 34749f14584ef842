"""How Envoy connects to the endpoints of a cluster: in the clear, by TLS, or each as its agent says."""

from __future__ import annotations

from typing import Any, Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.type.matcher.v3 import string_pb2
from google.protobuf import struct_pb2

from headrace_controller.xds.resources.wire import packed
from headrace_controller.xds.upstreams import UpstreamTls

MATCH_NAMESPACE: Final = "envoy.transport_socket_match"
"""Where Envoy looks in an endpoint's metadata for the socket that it is to be reached by."""

_TLS: Final = "headrace.tls"


def tls_mark() -> Any:
    """The metadata of an endpoint that is reached by TLS."""
    fields = struct_pb2.Struct()
    fields.update({_TLS: True})
    return base_pb2.Metadata(filter_metadata={MATCH_NAMESPACE: fields})


def set_transport(cluster: Any, tls: UpstreamTls | None, some_tls: bool) -> None:
    """Set how `cluster` connects: all by `tls`; or, where that is None and `some_tls`, those by TLS whose
    endpoints are marked."""
    if tls is not None:
        cluster.transport_socket.CopyFrom(_tls_socket(tls))
    elif some_tls:
        mark = struct_pb2.Struct()
        mark.update({_TLS: True})
        cluster.transport_socket_matches.append(
            cluster_pb2.Cluster.TransportSocketMatch(
                name="tls", match=mark, transport_socket=_tls_socket(UpstreamTls())
            )
        )


def _tls_socket(tls: UpstreamTls) -> Any:
    common = tls_pb2.CommonTlsContext()
    if tls.ca:
        common.validation_context.CopyFrom(_validation(tls))
    if tls.cert:
        common.tls_certificates.add(certificate_chain=_inline(tls.cert), private_key=_inline(tls.key))
    context = tls_pb2.UpstreamTlsContext(common_tls_context=common, sni=tls.server_name)
    return base_pb2.TransportSocket(name="envoy.transport_sockets.tls", typed_config=packed(context))


def _validation(tls: UpstreamTls) -> Any:
    validation = common_pb2.CertificateValidationContext(trusted_ca=_inline(tls.ca))
    if tls.server_name:
        validation.match_typed_subject_alt_names.add(
            san_type=common_pb2.SubjectAltNameMatcher.DNS,
            matcher=string_pb2.StringMatcher(exact=tls.server_name),
        )
    return validation


def _inline(text: str) -> Any:
    return base_pb2.DataSource(inline_string=text)
