"""CDS: one cluster a pool, or a class of it; its endpoints come by EDS."""

from __future__ import annotations

from typing import Any, Literal

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from envoy.config.core.v3 import base_pb2, health_check_pb2, protocol_pb2
from envoy.extensions.load_balancing_policies.least_request.v3 import least_request_pb2
from envoy.extensions.load_balancing_policies.round_robin.v3 import round_robin_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf import wrappers_pb2

from headrace_controller.projection.plan import PLAIN, PoolShape
from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.resources.picking import obeying
from headrace_controller.xds.resources.transport import set_transport
from headrace_controller.xds.resources.wire import bearer, extension, from_ads, packed, seconds, u32
from headrace_controller.xds.upstreams import PLAIN_UPSTREAM, Upstream

Baseline = Literal["rr", "lr"]

# Beyond what any fleet reaches: the defaults (1,024 requests) would refuse traffic that the engines are
# there to queue.
UNLIMITED = 1_000_000
# Retries and hedges that wait for an answer to begin, against all requests under way: a pool that is late
# as a whole is not asked everything twice. What is not hedged goes at high priority, where each request's own
# number of retries is the only bound: all that waited at a site ask again at once when it dies.
RETRY_PERCENT = 20.0
RETRIES_AT_LEAST = 10

# Envoy counts a stream that begins late as a local failure, until the host is sent another request: a few of
# them are no sign of a dead one, many failures without any connection are.
LOCAL_FAILURES = 5
LOCAL_FAILURES_HEDGED = 50

# An Envoy without a pool's endpoints should get on with the other pools.
EDS_FETCH_TIMEOUT_S = 5.0

HEALTH_CHECK_FAILURES = 3
# As where the controller itself asks: who does not know the path, or wants a key, is not dead.
FIRST_UNWELL_STATUS = 500

# At most a third of a pool: the controller decides, this only bridges its absence.
MAX_EJECTION_PERCENT = 34


def build_cluster(
    name: str,
    settings: EnvoySettings,
    baseline: Baseline | None,
    shape: PoolShape = PLAIN,
    upstream: Upstream = PLAIN_UPSTREAM,
    picks: bool = False,
) -> Any:
    """The cluster `name`, which is also the name of its endpoints; `shape` is its pool's.

    With `picks` it obeys the picker. A baseline is a plain Envoy: active health checks always, no outlier
    detection.
    """
    cluster = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(
            service_name=name, eds_config=from_ads(EDS_FETCH_TIMEOUT_S)
        ),
        connect_timeout=seconds(settings.connect_timeout_s),
        load_balancing_policy=obeying(_balancing(None)) if picks else _balancing(baseline),
        common_lb_config=_common_balancing(),
        circuit_breakers=_circuit_breakers(hedges(settings, baseline)),
    )
    protocol = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    cluster.typed_extension_protocol_options[protocol].CopyFrom(packed(_protocol(settings)))
    if settings.health_checks or baseline is not None:
        cluster.health_checks.append(_health_check(settings, shape.health_path, upstream.api_key))
        # Otherwise a removed endpoint that still passes its checks keeps taking traffic.
        cluster.ignore_health_on_host_removal = True
    if baseline is None:
        cluster.outlier_detection.CopyFrom(_outlier_detection(hedges(settings, baseline)))
    set_transport(cluster, upstream.tls, shape.tls)
    return cluster


def hedges(settings: EnvoySettings, baseline: Baseline | None) -> bool:
    """Whether streams that begin late are asked of another endpoint as well."""
    return bool(settings.hedge_after_s and settings.retries) and baseline is None


def _balancing(baseline: Baseline | None) -> Any:
    policy = (
        extension("envoy.load_balancing_policies.least_request", least_request_pb2.LeastRequest())
        if baseline == "lr"
        else extension("envoy.load_balancing_policies.round_robin", round_robin_pb2.RoundRobin())
    )
    balancing = cluster_pb2.LoadBalancingPolicy()
    balancing.policies.add(typed_extension_config=policy)
    return balancing


def _common_balancing() -> Any:
    return cluster_pb2.Cluster.CommonLbConfig(
        # Weights and health act at once, not at the end of a window of 1 s.
        update_merge_window=seconds(0),
        # Never spread requests over endpoints that are known to be down.
        healthy_panic_threshold=percent_pb2.Percent(value=0),
    )


def _circuit_breakers(hedged: bool) -> Any:
    usual, high = (
        circuit_breaker_pb2.CircuitBreakers.Thresholds(
            priority=priority,
            max_connections=u32(UNLIMITED),
            max_pending_requests=u32(UNLIMITED),
            max_requests=u32(UNLIMITED),
            max_retries=u32(UNLIMITED),
        )
        for priority in (base_pb2.DEFAULT, base_pb2.HIGH)
    )
    if not hedged:
        return circuit_breaker_pb2.CircuitBreakers(thresholds=[usual])
    usual.ClearField("max_retries")
    usual.retry_budget.budget_percent.value = RETRY_PERCENT
    usual.retry_budget.min_retry_concurrency.CopyFrom(u32(RETRIES_AT_LEAST))
    return circuit_breaker_pb2.CircuitBreakers(thresholds=[usual, high])


def _protocol(settings: EnvoySettings) -> Any:
    # Idle connections must end here before the engine ends them, or a request meets the close.
    options = http_protocol_options_pb2.HttpProtocolOptions(
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            idle_timeout=seconds(settings.upstream_idle_timeout_s)
        )
    )
    options.explicit_http_config.http_protocol_options.SetInParent()
    return options


def _health_check(settings: EnvoySettings, path: str, api_key: str) -> Any:
    interval = seconds(settings.health_check_interval_s)
    check = health_check_pb2.HealthCheck(
        timeout=seconds(settings.health_check_timeout_s),
        interval=interval,
        # By default a cluster without traffic is looked at once a minute.
        no_traffic_interval=interval,
        unhealthy_threshold=u32(HEALTH_CHECK_FAILURES),
        healthy_threshold=u32(1),
    )
    if not path:
        # A path that only some have would fail the others: ask only whether somebody listens.
        check.tcp_health_check.SetInParent()
        return check
    http = check.http_health_check
    http.path = path
    http.expected_statuses.add(start=200, end=FIRST_UNWELL_STATUS)
    if api_key:
        http.request_headers_to_add.append(bearer(api_key))
    return check


def _outlier_detection(hedged: bool) -> Any:
    return outlier_detection_pb2.OutlierDetection(
        interval=seconds(1),
        base_ejection_time=seconds(5),
        max_ejection_time=seconds(30),
        max_ejection_percent=u32(MAX_EJECTION_PERCENT),
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=u32(LOCAL_FAILURES_HEDGED if hedged else LOCAL_FAILURES),
        enforcing_consecutive_local_origin_failure=u32(100),
        consecutive_gateway_failure=u32(5),
        enforcing_consecutive_gateway_failure=u32(100),
        # 500s may be one client's requests, and success rates judge slow cells twice.
        enforcing_consecutive_5xx=u32(0),
        enforcing_success_rate=u32(0),
        enforcing_local_origin_success_rate=u32(0),
        # A wedged engine still answers its health check.
        successful_active_health_check_uneject_host=wrappers_pb2.BoolValue(value=False),
    )
