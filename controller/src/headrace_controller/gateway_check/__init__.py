"""Reads a running Envoy's configuration and names what in it would undo the weights that it is sent."""

from headrace_controller.gateway_check.check import Report, check
from headrace_controller.gateway_check.dump import NotAnEnvoyError
from headrace_controller.gateway_check.findings import Finding

__all__ = ["Finding", "NotAnEnvoyError", "Report", "check"]
