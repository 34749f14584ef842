"""The controller's settings file: every key, its unit and default; a file here for each section."""

from __future__ import annotations

from headrace_controller.settings.admin import AdminSettings, TokenSettings
from headrace_controller.settings.capability import CapabilitySettings
from headrace_controller.settings.controller import ControllerSettings, load
from headrace_controller.settings.envoy import GENERATION_PATHS, EnvoySettings, HttpPath
from headrace_controller.settings.gateways import GatewayReportsSettings, GatewaySettings
from headrace_controller.settings.lifecycle import CadenceSettings, LifecycleSettings
from headrace_controller.settings.listen import ListenSettings
from headrace_controller.settings.picker import PickerSettings
from headrace_controller.settings.pools import ModelId, PoolSettings, UpstreamTlsSettings
from headrace_controller.settings.pressure import EarlyWarningSettings, PressureSettings, RangeSettings
from headrace_controller.settings.projection import ProjectionSettings
from headrace_controller.settings.recording import RecordingSettings
from headrace_controller.settings.sites import NodePattern, SiteSettings

__all__ = [
    "GENERATION_PATHS",
    "AdminSettings",
    "CadenceSettings",
    "CapabilitySettings",
    "ControllerSettings",
    "EarlyWarningSettings",
    "EnvoySettings",
    "GatewayReportsSettings",
    "GatewaySettings",
    "HttpPath",
    "LifecycleSettings",
    "ListenSettings",
    "ModelId",
    "NodePattern",
    "PickerSettings",
    "PoolSettings",
    "PressureSettings",
    "ProjectionSettings",
    "RangeSettings",
    "RecordingSettings",
    "SiteSettings",
    "TokenSettings",
    "UpstreamTlsSettings",
    "load",
]
