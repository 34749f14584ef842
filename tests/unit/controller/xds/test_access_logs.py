"""What the generated configuration says of reports."""

from __future__ import annotations

import pytest
import yaml
from envoy.extensions.access_loggers.grpc.v3 import als_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2

from headrace_controller.gateway.records import FAILED_TRY_FLAGS, REQUESTS_LOG, TRIES_LOG
from headrace_controller.settings import EnvoySettings, GatewayReportsSettings
from headrace_controller.xds.bootstrap import render
from headrace_controller.xds.resources.listeners import build_listener
from headrace_controller.xds.snapshot import SnapshotBuilder
from headrace_shared.net import HostPort
from tests.unit.controller.xds.builders import GATEWAY

Manager = http_connection_manager_pb2.HttpConnectionManager


def manager(reports: GatewayReportsSettings | None) -> Manager:
    listener = build_listener(GATEWAY, EnvoySettings(), reports=reports)
    made = Manager()
    assert listener.filter_chains[0].filters[0].typed_config.Unpack(made)
    return made


def router(made: Manager) -> router_pb2.Router:
    found = router_pb2.Router()
    assert made.http_filters[-1].typed_config.Unpack(found)
    return found


def config_of(log: object) -> als_pb2.HttpGrpcAccessLogConfig:
    found = als_pb2.HttpGrpcAccessLogConfig()
    assert log.typed_config.Unpack(found)  # type: ignore[attr-defined]
    return found


def test_one_log_tells_of_requests_and_one_of_failed_tries() -> None:
    made = manager(GatewayReportsSettings(flush_s=0.5, alive_s=1, buffer_bytes=10_000))
    (requests,), (tries,) = made.access_log, router(made).upstream_log
    assert not requests.HasField("filter")
    assert list(tries.filter.response_flag_filter.flags) == list(FAILED_TRY_FLAGS)
    for log, name in ((requests, REQUESTS_LOG), (tries, TRIES_LOG)):
        config = config_of(log)
        common = config.common_config
        assert common.log_name == name
        assert common.grpc_service.envoy_grpc.cluster_name == "headrace-controller"
        assert common.buffer_flush_interval.ToMilliseconds() == 500
        assert common.buffer_size_bytes.value == 10_000
        # Nothing of what clients send or engines answer goes with it, but the answer's type.
        assert list(config.additional_request_headers_to_log) == []
        assert list(config.additional_response_headers_to_log) == ["content-type"]


def test_without_reports_there_is_no_log() -> None:
    made = manager(None)
    assert not made.access_log
    assert not router(made).upstream_log
    assert SnapshotBuilder(GATEWAY, EnvoySettings())._reports is None


@pytest.mark.parametrize("wanted", [True, False])
def test_the_bootstrap_says_where_loads_go(wanted: bool) -> None:
    tree = yaml.safe_load(render("gw-1", HostPort("10.0.0.9", 1), 9901, load_reports=wanted))
    assert ("cluster_manager" in tree) is wanted
    if wanted:
        (service,) = tree["cluster_manager"]["load_stats_config"]["grpc_services"]
        (cluster,) = tree["static_resources"]["clusters"]
        assert service["envoy_grpc"]["cluster_name"] == cluster["name"]
