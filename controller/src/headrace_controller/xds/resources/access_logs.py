"""The access logs by which a gateway reports to its controller."""

from __future__ import annotations

from typing import Any

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import config_source_pb2, grpc_service_pb2
from envoy.extensions.access_loggers.grpc.v3 import als_pb2

from headrace_controller.gateway.records import FAILED_TRY_FLAGS, REQUESTS_LOG, TRIES_LOG
from headrace_controller.settings import GatewayReportsSettings
from headrace_controller.xds.names import CONTROLLER_CLUSTER
from headrace_controller.xds.resources.wire import packed, seconds, u32


def requests_log(settings: GatewayReportsSettings) -> Any:
    """One record of each request, when it has ended."""
    return accesslog_pb2.AccessLog(
        name="envoy.access_loggers.http_grpc", typed_config=packed(_config(REQUESTS_LOG, settings))
    )


def tries_log(settings: GatewayReportsSettings) -> Any:
    """One record of each try that failed: the log of requests names the last endpoint only, so that who
    loses requests which are made again elsewhere would not show."""
    log = accesslog_pb2.AccessLog(
        name="envoy.access_loggers.http_grpc", typed_config=packed(_config(TRIES_LOG, settings))
    )
    log.filter.response_flag_filter.flags.extend(FAILED_TRY_FLAGS)
    return log


def _config(name: str, settings: GatewayReportsSettings) -> Any:
    service = grpc_service_pb2.GrpcService(
        envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=CONTROLLER_CLUSTER)
    )
    common = als_pb2.CommonGrpcAccessLogConfig(
        log_name=name,
        grpc_service=service,
        transport_api_version=config_source_pb2.ApiVersion.V3,
        buffer_flush_interval=seconds(settings.flush_s),
        # Beyond it records are dropped: a controller that is away costs no more memory than this.
        buffer_size_bytes=u32(settings.buffer_bytes),
    )
    return als_pb2.HttpGrpcAccessLogConfig(
        common_config=common, additional_response_headers_to_log=["content-type"]
    )
