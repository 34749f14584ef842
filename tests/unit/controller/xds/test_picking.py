"""What the generated configuration says of the picker."""

from __future__ import annotations

from typing import Any

from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.extensions.filters.http.json_to_metadata.v3 import json_to_metadata_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2

from headrace_controller.settings import EnvoySettings, PickerSettings
from headrace_controller.xds.names import METADATA_NAMESPACE, PICK_NAMESPACE
from headrace_controller.xds.resources.clusters import build_cluster
from headrace_controller.xds.resources.listeners import build_listener
from headrace_controller.xds.resources.picking import FOREIGN_HEADERS
from headrace_controller.xds.resources.routes import RouteBuilder
from tests.unit.controller.xds.builders import GATEWAY


def manager(picker: PickerSettings | None, **more: Any) -> Any:
    listener = build_listener(GATEWAY, EnvoySettings(), picker=picker, **more)
    made = http_connection_manager_pb2.HttpConnectionManager()
    assert listener.filter_chains[0].filters[0].typed_config.Unpack(made)
    return made


def processor(**settings: Any) -> Any:
    made = manager(PickerSettings(enabled=True, **settings))
    (found,) = (each for each in made.http_filters if each.name == "envoy.filters.http.ext_proc")
    config = ext_proc_pb2.ExternalProcessor()
    assert found.typed_config.Unpack(config)
    return config


def fields_read(made: Any) -> list[str]:
    config = json_to_metadata_pb2.JsonToMetadata()
    assert made.http_filters[0].typed_config.Unpack(config)
    return [rule.selectors[0].key for rule in config.request_rules.rules]


def test_it_is_asked_after_the_body_is_read_and_before_all_that_changes_it() -> None:
    made = manager(PickerSettings(enabled=True), renames=True)
    assert [each.name.rpartition(".")[2] for each in made.http_filters] == [
        "json_to_metadata", "ext_proc", "transform", "router",
    ]  # fmt: skip
    assert {"model", "max_tokens", "stream", "user"} <= set(fields_read(made))


def test_a_picker_that_is_away_slow_or_wrong_is_passed_over() -> None:
    config = processor(timeout_s=0.02)
    assert config.failure_mode_allow
    assert config.message_timeout.ToMilliseconds() == 20
    assert PickerSettings.model_fields["timeout_s"].default <= 0.05
    assert config.disable_immediate_response
    assert config.mutation_rules.disallow_all.value
    assert not config.allow_mode_override


def test_it_is_told_no_more_than_it_needs() -> None:
    config = processor(session_header="x-chat")
    assert [each.exact for each in config.forward_rules.allowed_headers.patterns] == ["x-chat"]
    mode = config.processing_mode
    assert (mode.request_header_mode, mode.request_body_mode) == (ProcessingMode.SEND, ProcessingMode.NONE)
    assert (mode.response_header_mode, mode.response_body_mode) == (
        *(ProcessingMode.SEND, ProcessingMode.STREAMED),
    )
    assert processor(prefix_affinity=True).processing_mode.request_body_mode == ProcessingMode.BUFFERED


def test_it_writes_where_no_filter_that_reads_clients_writes() -> None:
    config = processor()
    assert list(config.metadata_options.receiving_namespaces.untyped) == [PICK_NAMESPACE]
    assert list(config.metadata_options.forwarding_namespaces.untyped) == [METADATA_NAMESPACE]
    assert PICK_NAMESPACE != METADATA_NAMESPACE
    metadata = config.grpc_service.initial_metadata[0]
    assert (metadata.key, metadata.value) == ("x-headrace-gateway", GATEWAY.id)


def test_clusters_obey_it_by_metadata_alone_and_fall_back_to_the_weights() -> None:
    plain = build_cluster("pool/m", EnvoySettings(), None).load_balancing_policy
    balancing = build_cluster("pool/m", EnvoySettings(), None, picks=True).load_balancing_policy
    policy = override_host_pb2.OverrideHost()
    assert balancing.policies[0].typed_extension_config.typed_config.Unpack(policy)
    (source,) = policy.override_host_sources
    assert not source.header
    assert (source.metadata.key, source.metadata.path[0].key) == (PICK_NAMESPACE, "endpoints")
    assert policy.fallback_policy == plain


def test_headers_that_name_endpoints_elsewhere_are_not_passed_on() -> None:
    value = RouteBuilder(EnvoySettings(), remove_headers=FOREIGN_HEADERS).build(["m"], {}).value
    made = route_pb2.RouteConfiguration.FromString(value)
    assert tuple(made.request_headers_to_remove) == FOREIGN_HEADERS


def test_without_a_picker_nothing_of_it_is_there() -> None:
    made = manager(None)
    assert not made.always_set_request_id_in_response
    assert [each.name.rpartition(".")[2] for each in made.http_filters] == ["json_to_metadata", "router"]
    assert "user" not in fields_read(made)
