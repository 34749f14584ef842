"""Each setting of a cluster, of where it comes from, or of the runtime that would undo the weights."""

from __future__ import annotations

import pytest

from tests.unit.controller.gateway_check.pages import (
    Change,
    balanced,
    check_of,
    common_lb,
    drop,
    findings_after,
    found_alone,
    outliers,
    threshold,
    update,
)

BAD: list[tuple[str, str, Change]] = [
    ("error", "common_lb_config.update_merge_window", common_lb(update_merge_window="0.500s")),
    ("error", "common_lb_config.healthy_panic_threshold", common_lb(healthy_panic_threshold={"value": 50})),
    (
        "warning",
        "common_lb_config.ignore_new_hosts_until_first_hc",
        common_lb(ignore_new_hosts_until_first_hc=True),
    ),
    ("error", "locality_weighted_lb_config", common_lb(locality_weighted_lb_config={})),
    ("error", "zone_aware_lb_config", common_lb(zone_aware_lb_config={"min_cluster_size": "6"})),
    ("error", "lb_policy", update("pool", lb_policy="LEAST_REQUEST")),
    ("error", "lb_policy", update("pool", lb_policy="RANDOM")),
    ("error", "lb_policy", update("pool", lb_policy="MAGLEV")),
    ("error", "lb_policy", update("pool", lb_policy="CLUSTER_PROVIDED")),
    (
        "error",
        "load_balancing_policy",
        update("pool", load_balancing_policy=balanced("least_request.v3.LeastRequest")),
    ),
    (
        "error",
        "load_balancing_policy",
        update(
            "pool",
            load_balancing_policy=balanced(
                "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"
            ),
        ),
    ),
    (
        "error",
        "load_balancing_policy",
        update(
            "pool",
            load_balancing_policy=balanced(
                "override_host.v3.OverrideHost", fallback_policy=balanced("random.v3.Random")
            ),
        ),
    ),
    ("error", "slow_start_config", update("pool", round_robin_lb_config={"slow_start_config": {}})),
    (
        "error",
        "slow_start_config",
        update(
            "pool",
            load_balancing_policy=balanced(
                "round_robin.v3.RoundRobin", slow_start_config={"slow_start_window": "60s"}
            ),
        ),
    ),
    (
        "error",
        "zone_aware_lb_config",
        update(
            "pool",
            load_balancing_policy=balanced(
                "round_robin.v3.RoundRobin", locality_lb_config={"zone_aware_lb_config": {}}
            ),
        ),
    ),
    ("error", "lb_subset_config", update("pool", lb_subset_config={})),
    ("error", "circuit_breakers.thresholds.max_connections", threshold(max_connections=1024)),
    ("error", "circuit_breakers.thresholds.max_pending_requests", threshold(max_pending_requests=1024)),
    ("error", "circuit_breakers.thresholds.max_requests", threshold(max_requests=9999)),
    ("warning", "circuit_breakers.thresholds.max_retries", threshold(max_retries=3)),
    ("warning", "connect_timeout", update("pool", connect_timeout="5s")),
    ("error", "common_http_protocol_options.idle_timeout", update("common", idle_timeout="5s")),
    ("error", "common_http_protocol_options.idle_timeout", update("common", idle_timeout="0s")),
    ("error", "common_http_protocol_options.idle_timeout", drop("common", "idle_timeout")),
    (
        "error",
        "common_http_protocol_options.max_stream_duration",
        update("common", max_stream_duration="60s"),
    ),
    ("error", "ignore_health_on_host_removal", drop("pool", "ignore_health_on_host_removal")),
    ("warning", "health_checks.no_traffic_interval", check_of(no_traffic_interval="60s")),
    (
        "warning",
        "close_connections_on_host_health_failure",
        update("pool", close_connections_on_host_health_failure=True),
    ),
    (
        "error",
        "outlier_detection.enforcing_consecutive_5xx",
        outliers(enforcing_consecutive_5xx=100),
    ),
    ("warning", "outlier_detection.enforcing_success_rate", outliers(enforcing_success_rate=100)),
    (
        "warning",
        "outlier_detection.enforcing_local_origin_success_rate",
        outliers(enforcing_local_origin_success_rate=50),
    ),
    ("warning", "outlier_detection.enforcing_failure_percentage", outliers(enforcing_failure_percentage=5)),
    ("warning", "outlier_detection.max_ejection_percent", outliers(max_ejection_percent=100)),
    (
        "warning",
        "outlier_detection.split_external_local_origin_errors",
        outliers(split_external_local_origin_errors=False),
    ),
    (
        "error",
        "eds_cluster_config.service_name",
        lambda parts: parts.pool["eds_cluster_config"].update(service_name="llama"),
    ),
    ("error", "type", update("pool", type="STRICT_DNS")),
    ("error", "eds_config.api_config_source.api_type", update("api", api_type="REST")),
    (
        "error",
        "eds_cluster_config.eds_config",
        lambda parts: parts.pool["eds_cluster_config"].update(
            eds_config={"path_config_source": {"path": "/x"}}
        ),
    ),
    (
        "warning",
        "eds_config.api_config_source.grpc_services.envoy_grpc.retry_policy",
        lambda parts: parts.api["grpc_services"][0]["envoy_grpc"].pop("retry_policy"),
    ),
    (
        "warning",
        "http2_protocol_options.connection_keepalive",
        lambda parts: parts.controller.pop("typed_extension_protocol_options"),
    ),
    (
        "warning",
        "layered_runtime.outlier_detection.consecutive_5xx",
        update(
            "bootstrap",
            layered_runtime={"layers": [{"static_layer": {"outlier_detection.consecutive_5xx": 5}}]},
        ),
    ),
]


@pytest.mark.parametrize(
    ("level", "setting", "change"), BAD, ids=[f"{n}-{bad[1]}" for n, bad in enumerate(BAD)]
)
def test_a_bad_setting_is_found_alone(level: str, setting: str, change: Change) -> None:
    found_alone(level, setting, change)


GOODS: list[Change] = [
    outliers(),
    update("pool", lb_policy="ROUND_ROBIN"),
    update("pool", load_balancing_policy=balanced("round_robin.v3.RoundRobin")),
    update(
        "pool",
        load_balancing_policy=balanced(
            "override_host.v3.OverrideHost", fallback_policy=balanced("round_robin.v3.RoundRobin")
        ),
    ),
    lambda parts: parts.pool.pop("health_checks"),
    update("api", api_type="DELTA_GRPC"),
    threshold(max_retries=3, retry_budget={}),
]


@pytest.mark.parametrize("change", GOODS, ids=map(str, range(len(GOODS))))
def test_other_good_settings_are_good_too(change: Change) -> None:
    assert findings_after(change) == ()
