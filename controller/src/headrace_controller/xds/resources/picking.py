"""What a gateway needs to ask the picker, and to obey it."""

from __future__ import annotations

from typing import Any, Final

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, grpc_service_pb2
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2, processing_mode_pb2
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.metadata.v3 import metadata_pb2
from google.protobuf import wrappers_pb2

from headrace_controller.settings import PickerSettings
from headrace_controller.xds.names import (
    CONTROLLER_CLUSTER,
    GATEWAY_METADATA,
    METADATA_NAMESPACE,
    PICK_KEY,
    PICK_NAMESPACE,
)
from headrace_controller.xds.resources.wire import extension, seconds

FILTER: Final = "envoy.filters.http.ext_proc"
FOREIGN_HEADERS: Final = ("x-gateway-destination-endpoint", "x-headrace-endpoint")
"""By which other gateways are told an endpoint. None is read here, and none is passed on: what stands
behind this gateway must not obey a client either."""

_Mode = processing_mode_pb2.ProcessingMode


def picker_filter(gateway: str, settings: PickerSettings) -> Any:
    """The filter of a gateway that asks for each request, after the one that reads the body's fields.

    A picker that is away, slow or wrong is passed over. It is told headers and fields only, it may change
    no header and answer no request itself, and what it names goes where no client can write.
    """
    service = grpc_service_pb2.GrpcService(
        envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=CONTROLLER_CLUSTER),
        initial_metadata=[base_pb2.HeaderValue(key=GATEWAY_METADATA, value=gateway)],
    )
    namespaces = ext_proc_pb2.MetadataOptions.MetadataNamespaces
    patterns = [string_pb2.StringMatcher(exact=settings.session_header)]
    return ext_proc_pb2.ExternalProcessor(
        grpc_service=service,
        failure_mode_allow=True,
        message_timeout=seconds(settings.timeout_s),
        processing_mode=_mode(settings),
        request_attributes=["request.id", "request.size", "xds.cluster_name"],
        response_attributes=["upstream.address", "response.code"],
        metadata_options=ext_proc_pb2.MetadataOptions(
            forwarding_namespaces=namespaces(untyped=[METADATA_NAMESPACE]),
            receiving_namespaces=namespaces(untyped=[PICK_NAMESPACE]),
        ),
        forward_rules=ext_proc_pb2.HeaderForwardingRules(
            allowed_headers=string_pb2.ListStringMatcher(patterns=patterns)
        ),
        mutation_rules=mutation_rules_pb2.HeaderMutationRules(
            disallow_all=wrappers_pb2.BoolValue(value=True)
        ),
        disable_immediate_response=True,
        route_cache_action=ext_proc_pb2.ExternalProcessor.RETAIN,
    )


def _mode(settings: PickerSettings) -> Any:
    return _Mode(
        request_header_mode=_Mode.SEND,
        request_body_mode=_Mode.BUFFERED if settings.prefix_affinity else _Mode.NONE,
        request_trailer_mode=_Mode.SKIP,
        # An answer without a body has nothing else; the first chunk is what has to be timed.
        response_header_mode=_Mode.SEND,
        response_body_mode=_Mode.STREAMED,
        response_trailer_mode=_Mode.SKIP,
    )


def obeying(fallback: Any) -> Any:
    """A load-balancing policy that sends a request where the picker says, and to whom `fallback`, another
    policy's configuration, chooses where it says nothing or names no endpoint of the cluster."""
    source = override_host_pb2.OverrideHost.OverrideHostSource(
        metadata=metadata_pb2.MetadataKey(
            key=PICK_NAMESPACE, path=[metadata_pb2.MetadataKey.PathSegment(key=PICK_KEY)]
        )
    )
    policy = override_host_pb2.OverrideHost(override_host_sources=[source])
    policy.fallback_policy.CopyFrom(fallback)
    balancing = cluster_pb2.LoadBalancingPolicy()
    balancing.policies.add(
        typed_extension_config=extension("envoy.load_balancing_policies.override_host", policy)
    )
    return balancing
