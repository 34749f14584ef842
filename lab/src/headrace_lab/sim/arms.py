"""What each arm of a comparison has, as settings of the controller and a chooser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_controller.settings import ControllerSettings
from headrace_lab.scenarios.settings import Arm
from headrace_lab.sim.agents import GATEWAY


def controller_settings(arm: Arm, changes: Mapping[str, Any]) -> ControllerSettings | None:
    """The settings of an arm's controller, None where it has none; `changes` are merged over them.

    The simulated fleet stands when the load begins, so nothing waits for agents or ramps up.
    """
    if not arm.lifecycle or arm.balancer == "oracle":
        return None
    data: dict[str, Any] = {
        "gateways": [{"id": GATEWAY, "host": "127.0.0.1"}],
        "capability": {"classes": arm.classes},
        "pressure": {"early_warning": {"enabled": arm.classes}},
    }
    if arm.picker:
        data["picker"] = {"enabled": True, "prefix_affinity": arm.prefixes}
    if arm.scorer:
        data["pressure"]["scorer"] = arm.scorer
    if arm.projection:
        data["projection"] = {"name": arm.projection}
    return ControllerSettings.model_validate(_merged(data, changes))


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = _merged(old, value)
        merged[key] = value
    return merged
