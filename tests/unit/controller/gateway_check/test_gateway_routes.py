"""Each setting of a route, its host or its listener that would cut requests or undo retries."""

from __future__ import annotations

import copy

import pytest

from headrace_controller.gateway_check import check
from tests.unit.controller.gateway_check.pages import (
    GOOD,
    Change,
    Parts,
    drop,
    findings_after,
    found_alone,
    hedged,
    retry,
    update,
)

BAD: list[tuple[str, str, Change]] = [
    ("error", "route.timeout", drop("action", "timeout")),
    ("error", "route.timeout", update("action", timeout="60s")),
    (
        "error",
        "route.max_stream_duration",
        update("action", max_stream_duration={"max_stream_duration": "9s"}),
    ),
    ("warning", "route.idle_timeout", update("action", idle_timeout="60s")),
    ("warning", "stream_idle_timeout", update("manager", stream_idle_timeout="300s")),
    ("warning", "delayed_close_timeout", drop("manager", "delayed_close_timeout")),
    ("warning", "delayed_close_timeout", update("manager", delayed_close_timeout="1s")),
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
]


@pytest.mark.parametrize(
    ("level", "setting", "change"), BAD, ids=[f"{n}-{bad[1]}" for n, bad in enumerate(BAD)]
)
def test_a_bad_setting_is_found_alone(level: str, setting: str, change: Change) -> None:
    found_alone(level, setting, change)


GOODS: list[Change] = [
    update("action", idle_timeout="0s"),
    update("manager", stream_idle_timeout="0s"),
    update("manager", delayed_close_timeout="0s"),
    lambda parts: parts.host.update(retry_policy=parts.action.pop("retry_policy")),
    hedged({"filter": "headrace", "path": [{"key": "streams"}], "value": {"bool_match": True}}),
]


@pytest.mark.parametrize("change", GOODS, ids=map(str, range(len(GOODS))))
def test_other_good_settings_are_good_too(change: Change) -> None:
    assert findings_after(change) == ()


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
