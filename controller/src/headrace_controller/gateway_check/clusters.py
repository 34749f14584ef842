"""What of a cluster distorts its endpoints' weights, refuses requests or keeps dead engines."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_controller.gateway_check.findings import (
    Finding,
    Tree,
    branch,
    duration,
    items,
    number,
    number_or,
    said,
    text,
)

PROTOCOL = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
KEEP_ALIVE_S = 5.0
CONNECT_LIMIT_S = 1.0
CHECK_LIMIT_S = 5.0
FEW_REQUESTS = 10_000
FEW_RETRIES = 100
MANY_EJECTED_PERCENT = 50

_POLICIES = {
    "LeastRequest": "divides a weight by the requests under way, so that shares are not the weights'",
    "Random": "takes no account of weights",
    "RingHash": "sends a request where its hash says",
    "Maglev": "sends a request where its hash says",
    "ClientSideWeightedRoundRobin": "weighs by what engines report, not by the weights that are sent",
    "WrrLocality": "weighs localities, and there is one only",
    "ClusterProvided": "takes no account of weights",
    "Subset": "chooses among endpoints by labels, which those of Headrace do not carry",
}
_OLD_POLICIES = {
    "LEAST_REQUEST": "LeastRequest",
    "RANDOM": "Random",
    "RING_HASH": "RingHash",
    "MAGLEV": "Maglev",
    "CLUSTER_PROVIDED": "ClusterProvided",
}


def check_cluster(cluster: Tree) -> Iterator[Finding]:
    """All findings of a cluster that takes its endpoints from Headrace."""
    where = f"cluster {text(cluster, 'name')}"
    for check in (_updates, _panic, _policy, _breakers, _timeouts, _health_checks, _outliers):
        yield from check(where, cluster)


def protocol_of(cluster: Tree) -> Tree:
    """The cluster's HTTP options."""
    return branch(cluster, "typed_extension_protocol_options", PROTOCOL)


def _updates(where: str, cluster: Tree) -> Iterator[Finding]:
    window = duration(branch(cluster, "common_lb_config"), "update_merge_window")
    if window != 0:
        yield Finding(
            "error",
            where,
            "common_lb_config.update_merge_window",
            f"{said(window, '1', ' s')}: new weights and health wait for it",
            "update_merge_window: 0s",
        )
    if branch(cluster, "common_lb_config").get("ignore_new_hosts_until_first_hc"):
        yield Finding(
            "warning",
            where,
            "common_lb_config.ignore_new_hosts_until_first_hc",
            "true: an engine that is READY gets nothing before this Envoy has asked it too",
            "leave it out",
        )


def _panic(where: str, cluster: Tree) -> Iterator[Finding]:
    common = branch(cluster, "common_lb_config")
    # A threshold of 0 is written as an empty object.
    threshold = None
    if "healthy_panic_threshold" in common:
        threshold = number_or(branch(common, "healthy_panic_threshold"), "value", 0.0)
    if threshold != 0:
        yield Finding(
            "error",
            where,
            "common_lb_config.healthy_panic_threshold",
            f"{said(threshold, '50', ' %')}: with fewer healthy engines requests go to dead ones too",
            "healthy_panic_threshold: {value: 0}",
        )


def _policy(where: str, cluster: Tree) -> Iterator[Finding]:
    policies = items(cluster, "load_balancing_policy", "policies")
    if policies:
        config = branch(policies[0], "typed_extension_config", "typed_config")
        kind = text(config, "@type").rpartition(".")[2]
        if kind == "OverrideHost":
            nested = items(config, "fallback_policy", "policies")
            config = branch(nested[0], "typed_extension_config", "typed_config") if nested else {}
            kind = text(config, "@type").rpartition(".")[2]
        setting = "load_balancing_policy"
    else:
        old = text(cluster, "lb_policy")
        kind, config, setting = (
            _OLD_POLICIES.get(old, ""),
            branch(cluster, "round_robin_lb_config"),
            "lb_policy",
        )
    if kind in _POLICIES:
        yield Finding(
            "error", where, setting, f"{kind} {_POLICIES[kind]}", "round robin, which spreads by weights"
        )
    yield from _distortions(where, cluster, config)


def _distortions(where: str, cluster: Tree, config: Tree) -> Iterator[Finding]:
    if "slow_start_config" in config:
        yield Finding(
            "error",
            where,
            "slow_start_config",
            "set: it lowers the weight of a new endpoint a second time",
            "leave it out; Headrace lets a new engine's weight rise",
        )
    for holder in (branch(cluster, "common_lb_config"), branch(config, "locality_lb_config")):
        for key in ("locality_weighted_lb_config", "zone_aware_lb_config"):
            if key in holder:
                yield Finding(
                    "error",
                    where,
                    key,
                    "set: endpoints are chosen by place before weights count",
                    "leave it out; all endpoints are of one locality",
                )
    if "lb_subset_config" in cluster:
        yield Finding("error", where, "lb_subset_config", f"set: it {_POLICIES['Subset']}", "leave it out")


def _breakers(where: str, cluster: Tree) -> Iterator[Finding]:
    thresholds = items(cluster, "circuit_breakers", "thresholds")
    default = next((each for each in thresholds if text(each, "priority") in ("", "DEFAULT")), {})
    for key in ("max_connections", "max_pending_requests", "max_requests"):
        if number_or(default, key, 1024) < FEW_REQUESTS:
            yield Finding(
                "error",
                where,
                f"circuit_breakers.thresholds.{key}",
                f"{said(number(default, key), '1024')}: more are refused, that engines are there to queue",
                f"{key}: 1000000",
            )
    if number_or(default, "max_retries", 3) < FEW_RETRIES and "retry_budget" not in default:
        yield Finding(
            "warning",
            where,
            "circuit_breakers.thresholds.max_retries",
            f"{said(number(default, 'max_retries'), '3')}: when an engine dies, the rest of its requests "
            "fail instead of going elsewhere",
            "max_retries: 1000000",
        )


def _timeouts(where: str, cluster: Tree) -> Iterator[Finding]:
    connect = duration(cluster, "connect_timeout")
    if connect is None or connect > CONNECT_LIMIT_S:
        yield Finding(
            "warning",
            where,
            "connect_timeout",
            f"{said(connect, '5', ' s')}: a host that vanished costs each of its requests that long",
            "connect_timeout: 0.25s",
        )
    common = branch(protocol_of(cluster), "common_http_protocol_options")
    common = common or branch(cluster, "common_http_protocol_options")
    idle = duration(common, "idle_timeout")
    if idle is None or idle == 0 or idle >= KEEP_ALIVE_S:
        yield Finding(
            "error",
            where,
            "common_http_protocol_options.idle_timeout",
            f"{said(idle, 'an hour', '' if idle is None else ' s')}: vLLM ends idle connections after "
            f"{KEEP_ALIVE_S:g} s, and a request meets the end",
            "idle_timeout: 4s",
        )
    if duration(common, "max_stream_duration"):
        yield Finding(
            "error",
            where,
            "common_http_protocol_options.max_stream_duration",
            f"{text(common, 'max_stream_duration')}: longer answers are cut",
            "leave it out",
        )


def _health_checks(where: str, cluster: Tree) -> Iterator[Finding]:
    checks = items(cluster, "health_checks")
    if checks and not cluster.get("ignore_health_on_host_removal"):
        yield Finding(
            "error",
            where,
            "ignore_health_on_host_removal",
            "not true, with active health checks: an engine that is taken out and still answers them keeps "
            "its requests",
            "ignore_health_on_host_removal: true",
        )
    for each in checks:
        quiet = duration(each, "no_traffic_interval")
        if quiet is None or quiet > CHECK_LIMIT_S:
            yield Finding(
                "warning",
                where,
                "health_checks.no_traffic_interval",
                f"{said(quiet, '60', ' s')}: an engine that failed its"
                "  first check is not asked again before",
                "no_traffic_interval: 1s",
            )
    if cluster.get("close_connections_on_host_health_failure"):
        yield Finding(
            "warning",
            where,
            "close_connections_on_host_health_failure",
            "true: a failed check cuts answers that are under way",
            "leave it out",
        )


def _outliers(where: str, cluster: Tree) -> Iterator[Finding]:
    if "outlier_detection" not in cluster:
        return
    detection = branch(cluster, "outlier_detection")
    if number_or(detection, "enforcing_consecutive_5xx", 100) > 0:
        yield Finding(
            "error",
            where,
            "outlier_detection.enforcing_consecutive_5xx",
            "above 0, as it is when not set: five requests of one client that an engine answers by 500 take "
            "the engine out",
            "enforcing_consecutive_5xx: 0",
        )
    for key, default, split in (
        ("enforcing_success_rate", 100, False),
        ("enforcing_failure_percentage", 0, False),
        ("enforcing_local_origin_success_rate", 100, True),
        ("enforcing_failure_percentage_local_origin", 0, True),
    ):
        if split and not detection.get("split_external_local_origin_errors"):
            continue
        if number_or(detection, key, default) > 0:
            yield Finding(
                "warning",
                where,
                f"outlier_detection.{key}",
                "above 0, as it is when not set: it judges engines a second time, by what Headrace weighs"
                if default
                else "above 0: it judges engines a second time, by what Headrace weighs",
                f"{key}: 0",
            )
    yield from _ejections(where, cluster, detection)


def _ejections(where: str, cluster: Tree, detection: Tree) -> Iterator[Finding]:
    if number_or(detection, "max_ejection_percent", 10) > MANY_EJECTED_PERCENT:
        yield Finding(
            "warning",
            where,
            "outlier_detection.max_ejection_percent",
            f"{number_or(detection, 'max_ejection_percent', 10):g}: most of a pool may be taken out without "
            "Headrace's knowledge",
            "max_ejection_percent: 34",
        )
    if not detection.get("split_external_local_origin_errors"):
        yield Finding(
            "warning",
            where,
            "outlier_detection.split_external_local_origin_errors",
            "not true: a refused connection and an engine's own 500 are counted as one",
            "split_external_local_origin_errors: true",
        )
    if branch(protocol_of(cluster), "outlier_detection", "error_matcher"):
        yield Finding(
            "warning",
            where,
            "outlier_detection.error_matcher",
            "set: if it matches 4xx, one client's bad requests take engines out",
            "leave it out",
        )
