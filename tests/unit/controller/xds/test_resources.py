"""Each resource says what the design asks of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.json_to_metadata.v3 import json_to_metadata_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2

from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.resources.clusters import Baseline, build_cluster
from headrace_controller.xds.resources.listeners import build_listener
from headrace_controller.xds.resources.routes import RouteBuilder
from tests.unit.controller.xds.builders import GATEWAY


def cluster(baseline: Baseline | None = None, **settings: Any) -> cluster_pb2.Cluster:
    return build_cluster("pool/m", EnvoySettings(**settings), baseline)


def routes(*models: str, baseline: Baseline | None = None, **settings: Any) -> dict[str, Any]:
    """Routes by name, in order."""
    value = RouteBuilder(EnvoySettings(**settings), baseline).build(models, {}).value
    made = route_pb2.RouteConfiguration.FromString(value)
    return {route.name: route for route in made.virtual_hosts[0].routes}


def manager(**settings: Any) -> http_connection_manager_pb2.HttpConnectionManager:
    listener = build_listener(GATEWAY, EnvoySettings(**settings))
    made = http_connection_manager_pb2.HttpConnectionManager()
    assert listener.filter_chains[0].filters[0].typed_config.Unpack(made)
    return made


def test_a_cluster_balances_by_weight_without_delay_or_panic() -> None:
    made = cluster()
    assert made.load_balancing_policy.policies[0].typed_extension_config.name.endswith("round_robin")
    common = made.common_lb_config
    assert common.HasField("update_merge_window")
    assert common.update_merge_window.ToNanoseconds() == 0
    assert common.HasField("healthy_panic_threshold")
    assert common.healthy_panic_threshold.value == 0
    assert not common.HasField("locality_weighted_lb_config")
    assert not common.HasField("zone_aware_lb_config")


def test_a_cluster_never_runs_into_a_circuit_breaker() -> None:
    for threshold in cluster().circuit_breakers.thresholds:
        for name in ("max_connections", "max_pending_requests", "max_requests"):
            assert getattr(threshold, name).value >= 1_000_000, name


def test_retries_are_bounded_by_the_requests_under_way_where_late_streams_are_hedged() -> None:
    hedged, other = cluster().circuit_breakers.thresholds
    assert (hedged.priority, other.priority) == (base_pb2.DEFAULT, base_pb2.HIGH)
    assert hedged.retry_budget.budget_percent.value == 20
    assert hedged.retry_budget.min_retry_concurrency.value == 10
    for each in (other, *cluster("rr").circuit_breakers.thresholds):
        assert not each.HasField("retry_budget")
        assert each.max_retries.value >= 1_000_000
    (unhedged,) = cluster(hedge_after_s=0.0).circuit_breakers.thresholds
    assert unhedged.max_retries.value >= 1_000_000


def test_a_cluster_ends_idle_connections_before_the_engine_does() -> None:
    made = cluster(upstream_idle_timeout_s=3.5, connect_timeout_s=0.125)
    options = http_protocol_options_pb2.HttpProtocolOptions()
    (box,) = made.typed_extension_protocol_options.values()
    assert box.Unpack(options)
    assert options.common_http_protocol_options.idle_timeout.ToMilliseconds() == 3500
    assert options.explicit_http_config.HasField("http_protocol_options")
    assert made.connect_timeout.ToMilliseconds() == 125


def test_health_checks_never_keep_a_removed_endpoint() -> None:
    made = cluster()
    (check,) = made.health_checks
    assert (check.unhealthy_threshold.value, check.interval.ToMilliseconds()) == (3, 1000)
    assert check.no_traffic_interval.ToMilliseconds() == 1000
    assert check.http_health_check.path == "/health"
    assert made.ignore_health_on_host_removal
    assert not cluster(health_checks=False).health_checks


def test_outlier_detection_looks_at_gateway_and_local_errors_only() -> None:
    outlier = cluster().outlier_detection
    assert outlier.split_external_local_origin_errors
    assert outlier.enforcing_consecutive_gateway_failure.value == 100
    assert outlier.enforcing_consecutive_local_origin_failure.value == 100
    # A stream that begins late counts as one where it is hedged.
    assert outlier.consecutive_local_origin_failure.value == 50
    assert cluster(hedge_after_s=0.0).outlier_detection.consecutive_local_origin_failure.value == 5
    for name in ("consecutive_5xx", "success_rate", "local_origin_success_rate"):
        assert outlier.HasField(f"enforcing_{name}"), name
        assert getattr(outlier, f"enforcing_{name}").value == 0, name
    assert outlier.max_ejection_percent.value < 50


@pytest.mark.parametrize(("baseline", "policy"), [("rr", "round_robin"), ("lr", "least_request")])
def test_a_baseline_is_a_plain_envoy_with_health_checks(baseline: Baseline, policy: str) -> None:
    made = cluster(baseline, health_checks=False)
    assert made.load_balancing_policy.policies[0].typed_extension_config.name.endswith(policy)
    assert len(made.health_checks) == 1
    assert not made.HasField("outlier_detection")
    assert not routes("m", baseline=baseline)["pool/m"].route.HasField("retry_policy")


def test_a_route_never_times_out_and_retries_elsewhere_only() -> None:
    action = routes("m", retries=3)["pool/m"].route
    assert action.HasField("timeout")
    assert action.timeout.ToNanoseconds() == 0
    policy = action.retry_policy
    assert policy.retry_on == "connect-failure,refused-stream,reset"
    assert policy.num_retries.value == 3
    assert not policy.HasField("per_try_timeout")
    (predicate,) = policy.retry_host_predicate
    assert predicate.name == "envoy.retry_host_predicates.previous_hosts"
    assert policy.host_selection_retry_max_attempts > EnvoySettings().retries + 100
    assert not routes("m", retries=0)["pool/m"].route.HasField("retry_policy")


def test_routes_stand_in_the_order_that_decides() -> None:
    assert list(routes("b", "a")) == [
        *("no-path", "no-method", "stream/pool/b", "pool/b", "stream/pool/a", "pool/a"),
        *("unknown-model", "header/b", "header/a"),
        *("models", "models/b", "models/a", "unknown-listed-model"),
        *("unknown-header-model", "form-without-model", "not-json", "no-model"),
    ]


def test_the_model_list_names_every_pool_and_fits() -> None:
    models = [f"model-{number}" for number in range(200)]
    value = RouteBuilder(EnvoySettings()).build(models, {}).value
    made = route_pb2.RouteConfiguration.FromString(value)
    body = routes(*models)["models"].direct_response.body.inline_string
    assert [each["id"] for each in json.loads(body)["data"]] == models
    assert made.max_direct_response_body_size_bytes.value >= len(body.encode())


def test_the_upstream_is_exposed_only_when_asked() -> None:
    assert not routes("m")["pool/m"].response_headers_to_add
    (added,) = routes("m", expose_upstream=True)["pool/m"].response_headers_to_add
    assert (added.header.key, added.header.value) == ("x-headrace-upstream", "%UPSTREAM_REMOTE_ADDRESS%")


def test_a_listener_reads_the_model_and_then_routes() -> None:
    made = manager(stream_idle_timeout_s=77)
    assert [each.name for each in made.http_filters] == [
        "envoy.filters.http.json_to_metadata",
        "envoy.filters.http.router",
    ]
    rules = json_to_metadata_pb2.JsonToMetadata()
    assert made.http_filters[0].typed_config.Unpack(rules)
    read = [(rule.selectors[0].key, rule.on_present.key) for rule in rules.request_rules.rules]
    assert read == [
        ("model", "model"),
        ("max_tokens", "max_tokens"),
        ("max_completion_tokens", "max_tokens"),
        ("max_output_tokens", "max_tokens"),
        ("stream", "streams"),
    ]
    assert {rule.on_present.metadata_namespace for rule in rules.request_rules.rules} == {"headrace"}
    assert made.stream_idle_timeout.ToMilliseconds() == 77_000
    assert made.delayed_close_timeout.ToMilliseconds() == 100
    assert manager(delayed_close_s=0).delayed_close_timeout.ToMilliseconds() == 0
    assert manager(delayed_close_s=0).HasField("delayed_close_timeout")


def test_a_listener_takes_bodies_up_to_the_limit() -> None:
    listener = build_listener(GATEWAY, EnvoySettings(max_request_bytes=5_000_000))
    assert listener.per_connection_buffer_limit_bytes.value == 5_000_000
    socket = listener.address.socket_address
    assert (socket.address, socket.port_value) == ("127.0.0.1", 10000)


def test_an_empty_pool_answers_with_a_time_to_come_back() -> None:
    first = manager(retry_after_s=9).local_reply_config.mappers[0]
    assert list(first.filter.response_flag_filter.flags) == ["UH"]
    assert [(each.header.key, each.header.value) for each in first.headers_to_add] == [("retry-after", "9")]
    error = first.body_format_override.json_format["error"]
    assert {"message", "type", "param", "code"} == set(error.keys())
