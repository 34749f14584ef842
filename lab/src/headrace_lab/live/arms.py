"""What each arm tells the controller: the rest of the stack stays as it is."""

from __future__ import annotations

from typing import Any

from headrace_lab.demo import settings_files
from headrace_lab.live.layout import Layout
from headrace_lab.scenarios.settings import Arm, ClientPlan, GatewayPlan

GATEWAY_ADDRESS = "10.77.0.1"
"""Where the gateway stands when there is a WAN before the sites."""
BASELINES = {"round_robin": "rr", "least_request": "lr"}


def controller_settings(
    layout: Layout, arm: Arm, gateway: GatewayPlan, state_dir: str = ""
) -> dict[str, Any]:
    """The controller's settings file for an arm. `state_dir` "" = it keeps nothing."""
    data = settings_files.controller(layout.fleet)
    if layout.places:
        data["listen"]["telemetry"] = f"0.0.0.0:{layout.fleet.ports.telemetry}"
        data["gateways"][0]["host"] = GATEWAY_ADDRESS
    data["capability"] = {"classes": arm.classes}
    data["pressure"] = {"early_warning": {"enabled": arm.classes}}
    data["picker"] = {"enabled": arm.picker, "prefix_affinity": arm.prefixes}
    if arm.scorer:
        data["pressure"]["scorer"] = arm.scorer
    if arm.projection:
        data["projection"] = {"name": arm.projection}
    data["envoy"] |= {
        "connect_timeout_s": gateway.connect_timeout_s,
        "health_check_interval_s": gateway.health_interval_s,
        "health_check_timeout_s": gateway.health_timeout_s,
        "retries": gateway.retries if arm.retries else 0,
        "hedge_after_s": gateway.hedge_after_s,
    }
    if not arm.lifecycle:
        data["baseline"] = BASELINES[arm.balancer]
        if arm.retries:
            data["envoy"]["baseline_retries"] = True
    if state_dir:
        data["state_dir"] = state_dir
        data["recording"] = {"enabled": False}
    return data


def drain_s(client: ClientPlan) -> float:
    """How long the last requests of a load are waited for."""
    return client.timeout_s + 1
