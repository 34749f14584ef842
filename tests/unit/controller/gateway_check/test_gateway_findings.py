"""Each setting that would undo the weights is found, and nothing else is."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.gateway_check import NotAnEnvoyError, check

DUMPS = Path(__file__).parents[3] / "data" / "envoy_dumps"
GOOD = {name: json.loads((DUMPS / f"{name}.json").read_text()) for name in ("full", "endpoints_only")}
PROTOCOL = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
LB = "type.googleapis.com/envoy.extensions.load_balancing_policies"

Page = Any
Change = Callable[["Parts"], None]


class Parts:
    """The objects of the page for endpoints only, to be changed in place."""

    def __init__(self, page: Page) -> None:
        by_type = {each["@type"].rpartition(".")[2]: each for each in page["configs"]}
        self.bootstrap = by_type["BootstrapConfigDump"]["bootstrap"]
        clusters = [each["cluster"] for each in by_type["ClustersConfigDump"]["static_clusters"]]
        dynamic = by_type["ClustersConfigDump"].get("dynamic_active_clusters", [])
        clusters += [each["cluster"] for each in dynamic]
        self.clusters = {each["name"]: each for each in clusters}
        self.pool = self.clusters["llama"]
        self.controller = self.clusters["headrace-controller"]
        self.listener = by_type["ListenersConfigDump"]["static_listeners"][0]["listener"]
        self.manager = self.listener["filter_chains"][0]["filters"][0]["typed_config"]
        self.host = self.manager["route_config"]["virtual_hosts"][0]
        self.route = self.host["routes"][0]
        self.action = self.route["route"]
        self.api = self.pool["eds_cluster_config"]["eds_config"]["api_config_source"]

    @property
    def common(self) -> Any:
        return self.pool["typed_extension_protocol_options"][PROTOCOL]["common_http_protocol_options"]


def balanced(kind: str, **config: Any) -> Any:
    """A load-balancing policy, as a dump has it."""
    typed = {"@type": f"{LB}.{kind}", **config}
    return {"policies": [{"typed_extension_config": {"name": "x", "typed_config": typed}}]}


def update(tree: str, **values: Any) -> Change:
    def change(parts: Parts) -> None:
        getattr(parts, tree).update(copy.deepcopy(values))

    return change


def drop(tree: str, *keys: str) -> Change:
    def change(parts: Parts) -> None:
        for key in keys:
            del getattr(parts, tree)[key]

    return change


def threshold(**values: Any) -> Change:
    def change(parts: Parts) -> None:
        (only,) = parts.pool["circuit_breakers"]["thresholds"]
        only.update(values)

    return change


def hedged(*matches: Any) -> Change:
    """A second attempt where the first is late, for the requests that match."""

    def change(parts: Parts) -> None:
        parts.action["hedge_policy"] = {"hedge_on_per_try_timeout": True}
        parts.action["retry_policy"]["per_try_timeout"] = "1s"
        parts.route["match"].setdefault("dynamic_metadata", []).extend(matches)

    return change


def common_lb(**values: Any) -> Change:
    return lambda parts: parts.pool["common_lb_config"].update(values)


def retry(**values: Any) -> Change:
    return lambda parts: parts.action["retry_policy"].update(values)


def check_of(**values: Any) -> Change:
    return lambda parts: parts.pool["health_checks"][0].update(values)


QUIET = {
    "enforcing_consecutive_5xx": 0,
    "enforcing_success_rate": 0,
    "enforcing_local_origin_success_rate": 0,
    "split_external_local_origin_errors": True,
}


def outliers(**values: Any) -> Change:
    return update("pool", outlier_detection=QUIET | values)


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
    ("error", "route.timeout", drop("action", "timeout")),
    ("error", "route.timeout", update("action", timeout="60s")),
    (
        "error",
        "route.max_stream_duration",
        update("action", max_stream_duration={"max_stream_duration": "9s"}),
    ),
    ("warning", "route.idle_timeout", update("action", idle_timeout="60s")),
    ("warning", "stream_idle_timeout", update("manager", stream_idle_timeout="300s")),
    (
        "error",
        "common_http_protocol_options.max_stream_duration",
        update("manager", common_http_protocol_options={"max_stream_duration": "60s"}),
    ),
    ("error", "route.retry_policy", drop("action", "retry_policy")),
    ("error", "route.retry_policy.retry_on", retry(retry_on="connect-failure")),
    ("warning", "route.retry_policy.retry_on", retry(retry_on="reset, 5xx")),
    ("warning", "route.retry_policy.retry_on", retry(retry_on="retriable-4xx,reset")),
    ("error", "route.retry_policy.per_try_timeout", retry(per_try_timeout="10s")),
    ("warning", "route.retry_policy.retry_host_predicate", retry(retry_host_predicate=[])),
    ("warning", "route.retry_policy.retry_host_predicate", retry(host_selection_retry_max_attempts="1")),
    ("warning", "hedge_policy", hedged()),
    ("warning", "hedge_policy", hedged({"filter": "headrace", "path": [{"key": "model"}]})),
    ("warning", "per_connection_buffer_limit_bytes", drop("listener", "per_connection_buffer_limit_bytes")),
    ("warning", "per_request_buffer_limit_bytes", update("route", per_request_buffer_limit_bytes=65536)),
    ("warning", "request_body_buffer_limit", update("host", request_body_buffer_limit="1048576")),
    (
        "error",
        "http_filters.buffer.max_request_bytes",
        lambda parts: parts.manager["http_filters"].insert(
            0,
            {
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
                    "max_request_bytes": 1048576,
                }
            },
        ),
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
    page = copy.deepcopy(GOOD["endpoints_only"])
    change(Parts(page))
    (finding,) = check(page, ["llama"]).findings
    assert (finding.level, finding.setting) == (level, setting)
    assert finding.says
    assert finding.mend


@pytest.mark.parametrize("name", GOOD)
def test_good_configurations_are_good(name: str) -> None:
    report = check(GOOD[name])
    assert report.findings == ()
    assert report.clusters == {"full": ("pool/m", "pool/n"), "endpoints_only": ("llama",)}[name]


GOODS: list[Change] = [
    outliers(),
    update("action", idle_timeout="0s"),
    update("manager", stream_idle_timeout="0s"),
    update("pool", lb_policy="ROUND_ROBIN"),
    update("pool", load_balancing_policy=balanced("round_robin.v3.RoundRobin")),
    update(
        "pool",
        load_balancing_policy=balanced(
            "override_host.v3.OverrideHost", fallback_policy=balanced("round_robin.v3.RoundRobin")
        ),
    ),
    lambda parts: parts.host.update(retry_policy=parts.action.pop("retry_policy")),
    lambda parts: parts.pool.pop("health_checks"),
    update("api", api_type="DELTA_GRPC"),
    threshold(max_retries=3, retry_budget={}),
    hedged({"filter": "headrace", "path": [{"key": "streams"}], "value": {"bool_match": True}}),
]


@pytest.mark.parametrize("change", GOODS, ids=map(str, range(len(GOODS))))
def test_other_good_settings_are_good_too(change: Change) -> None:
    page = copy.deepcopy(GOOD["endpoints_only"])
    change(Parts(page))
    assert check(page).findings == ()


def test_a_filter_that_holds_the_body_makes_a_small_buffer_an_error() -> None:
    page = copy.deepcopy(GOOD["full"])
    listeners = next(each for each in page["configs"] if "dynamic_listeners" in each)
    listeners["dynamic_listeners"][0]["active_state"]["listener"]["per_connection_buffer_limit_bytes"] = (
        1048576
    )
    (finding,) = check(page).findings
    assert (finding.level, finding.setting) == ("error", "per_connection_buffer_limit_bytes")
    assert "JsonToMetadata answers longer prompts by 413" in finding.says


def test_what_leads_elsewhere_is_left_alone() -> None:
    page = copy.deepcopy(GOOD["endpoints_only"])
    parts = Parts(page)
    parts.host["routes"].append({"match": {"prefix": "/web"}, "route": {"cluster": "web"}})
    assert check(page).findings == ()
    parts.action["weighted_clusters"] = {"clusters": [{"name": parts.action.pop("cluster"), "weight": 1}]}
    del parts.action["timeout"]
    (finding,) = check(page).findings
    assert finding.where == "route /v1/ of inference"


def test_an_envoy_that_asks_for_no_pool_is_told_so_and_a_cluster_may_be_named() -> None:
    page = copy.deepcopy(GOOD["endpoints_only"])
    Parts(page).pool["eds_cluster_config"]["service_name"] = "llama"
    (finding,) = check(page).findings
    assert (finding.level, finding.where) == ("error", "clusters")
    assert "headrace-controller, llama" in finding.says
    missing, wrong = check(page, ["llama", "lama"]).findings
    assert (missing.where, wrong.setting) == ("cluster lama", "eds_cluster_config.service_name")


def test_errors_come_first_and_nothing_is_said_twice() -> None:
    page = copy.deepcopy(GOOD["endpoints_only"])
    parts = Parts(page)
    parts.pool["connect_timeout"] = "5s"
    parts.api["grpc_services"] *= 2
    del parts.action["timeout"]
    found = check(page).findings
    assert [each.level for each in found] == ["error", "warning"]


@pytest.mark.parametrize(
    "page", [None, [], {}, {"configs": []}, {"configs": [{"@type": 3}]}, {"configs": "x"}]
)
def test_pages_of_another_kind_are_refused(page: Any) -> None:
    with pytest.raises(NotAnEnvoyError):
        check(page)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_whatever_stands_in_a_page_is_survived(data: st.DataObject) -> None:
    """Anything may stand where an object or a number is expected."""
    page = copy.deepcopy(GOOD[data.draw(st.sampled_from(sorted(GOOD)))])
    for _ in range(data.draw(st.integers(1, 4))):
        holder: Any = page["configs"]
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(holder[key], (dict, list)) and data.draw(st.integers(0, 5)):
                holder = holder[key]
                continue
            holder[key] = data.draw(values)
            break
    try:
        check(page)
    except NotAnEnvoyError:
        return
