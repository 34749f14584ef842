"""The check of a running Envoy: it likes what we make, and names what is wrong elsewhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace_controller.gateway_check import Report, check
from headrace_controller.gateway_check.commands import app
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.envoy import Envoy
from tests.e2e.xds.own_config import own_stack
from tests.e2e.xds.stack import running_stack
from tests.e2e.xds.test_own_config import running_control


async def checked(envoy: Envoy, *names: str) -> Report:
    return check(json.loads(await envoy.get("/config_dump")), names)


@pytest.mark.parametrize("delta", [False, True])
async def test_an_envoy_that_we_configure_is_good(tmp_path: Path, delta: bool) -> None:
    a = Cell("a")
    async with running_cells(a), running_stack(tmp_path, {"m": {a: 1}, "n": {}}, delta=delta) as stack:
        await stack.control.in_force()
        report = await checked(stack.envoy)
        assert report.findings == ()
        assert report.clusters == ("pool/m", "pool/n")


async def test_the_example_for_endpoints_only_is_good(tmp_path: Path) -> None:
    async with running_control({"llama": {}}) as control, own_stack(control, tmp_path) as stack:
        report = await checked(stack.envoy)
        assert report.findings == ()
        assert report.clusters == ("llama",)
        result = await asyncio.to_thread(CliRunner().invoke, app, ["check", stack.envoy.base, "--json"])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["clusters"] == ["llama"]


def spoil(tree: dict[str, Any]) -> None:
    """An ordinary configuration, whose author thought of web pages."""
    pool, controller = tree["static_resources"]["clusters"]
    (listener,) = tree["static_resources"]["listeners"]
    for key in ("common_lb_config", "circuit_breakers", "ignore_health_on_host_removal", "connect_timeout"):
        del pool[key]
    del pool["typed_extension_protocol_options"]
    del pool["health_checks"][0]["no_traffic_interval"]
    del pool["eds_cluster_config"]["eds_config"]["api_config_source"]["grpc_services"][0]["envoy_grpc"][
        "retry_policy"
    ]
    pool["lb_policy"] = "LEAST_REQUEST"
    pool["common_lb_config"] = {"zone_aware_lb_config": {}}
    pool["outlier_detection"] = {}
    protocol = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    controller["typed_extension_protocol_options"][protocol]["explicit_http_config"] = {
        "http2_protocol_options": {}
    }
    del listener["per_connection_buffer_limit_bytes"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    del manager["stream_idle_timeout"]
    del manager["delayed_close_timeout"]
    (route,) = manager["route_config"]["virtual_hosts"][0]["routes"]
    del route["route"]["timeout"]
    route["route"]["retry_policy"] = {"retry_on": "5xx", "per_try_timeout": "10s"}
    tree["layered_runtime"] = {
        "layers": [{"name": "s", "static_layer": {"upstream": {"healthy_panic_threshold": 40}}}]
    }


async def test_an_ordinary_configuration_is_told_what_undoes_the_weights(tmp_path: Path) -> None:
    async with running_control({"llama": {}}) as control, own_stack(control, tmp_path, change=spoil) as stack:
        report = await checked(stack.envoy)
        assert {(each.level, each.setting) for each in report.findings} == {
            ("error", "common_lb_config.update_merge_window"),
            ("error", "common_lb_config.healthy_panic_threshold"),
            ("error", "lb_policy"),
            ("error", "zone_aware_lb_config"),
            ("error", "circuit_breakers.thresholds.max_connections"),
            ("error", "circuit_breakers.thresholds.max_pending_requests"),
            ("error", "circuit_breakers.thresholds.max_requests"),
            ("warning", "circuit_breakers.thresholds.max_retries"),
            ("warning", "connect_timeout"),
            ("error", "common_http_protocol_options.idle_timeout"),
            ("error", "ignore_health_on_host_removal"),
            ("warning", "health_checks.no_traffic_interval"),
            ("error", "outlier_detection.enforcing_consecutive_5xx"),
            ("warning", "outlier_detection.enforcing_success_rate"),
            ("warning", "outlier_detection.split_external_local_origin_errors"),
            ("warning", "per_connection_buffer_limit_bytes"),
            ("warning", "stream_idle_timeout"),
            ("warning", "delayed_close_timeout"),
            ("error", "route.timeout"),
            ("error", "route.retry_policy.per_try_timeout"),
            ("warning", "route.retry_policy.retry_on"),
            ("warning", "route.retry_policy.retry_host_predicate"),
            ("warning", "eds_config.api_config_source.grpc_services.envoy_grpc.retry_policy"),
            ("warning", "http2_protocol_options.connection_keepalive"),
            ("warning", "layered_runtime.upstream.healthy_panic_threshold"),
        }
        result = await asyncio.to_thread(CliRunner().invoke, app, ["check", stack.envoy.base])
        assert result.exit_code == 1
        assert "update_merge_window: not set, which is 1 s" in result.stdout
        assert "mend: update_merge_window: 0s" in result.stdout
        assert result.stdout.endswith("12 errors, 13 warnings\n")
