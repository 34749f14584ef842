"""The whole file: its sections, what must agree between them, and how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from headrace_controller.settings.admin import AdminSettings
from headrace_controller.settings.capability import CapabilitySettings
from headrace_controller.settings.envoy import EnvoySettings
from headrace_controller.settings.gateways import GatewayReportsSettings, GatewaySettings
from headrace_controller.settings.lifecycle import CadenceSettings, LifecycleSettings
from headrace_controller.settings.listen import ListenSettings
from headrace_controller.settings.picker import PickerSettings
from headrace_controller.settings.pools import ModelId, PoolSettings
from headrace_controller.settings.pressure import PressureSettings
from headrace_controller.settings.projection import ProjectionSettings
from headrace_controller.settings.recording import RecordingSettings
from headrace_controller.settings.sites import SiteSettings
from headrace_shared import config
from headrace_shared.config import Name, Settings
from headrace_shared.log import LogSettings


class ControllerSettings(Settings):
    """The whole file. With `sites`, agents may be at these alone. `state_dir` keeps the last fleet for
    a warm start; without it a restart starts cold. `baseline` makes the gateways a plain Envoy (rr or
    lr), for comparison. `pools` says what is special to the cells of a model, by its id.
    `aliases` are other names by which clients may ask for a model; a model of that very name goes
    first."""

    region: Name = "default"
    listen: ListenSettings = ListenSettings()
    gateways: tuple[GatewaySettings, ...] = Field(min_length=1, max_length=64)
    sites: dict[Name, SiteSettings] = Field(default_factory=dict, max_length=1024)
    cadence: CadenceSettings = CadenceSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    pressure: PressureSettings = PressureSettings()
    projection: ProjectionSettings = ProjectionSettings()
    capability: CapabilitySettings = CapabilitySettings()
    envoy: EnvoySettings = EnvoySettings()
    gateway_reports: GatewayReportsSettings = GatewayReportsSettings()
    picker: PickerSettings = PickerSettings()
    pools: dict[ModelId, PoolSettings] = Field(default_factory=dict, max_length=1024)
    aliases: dict[ModelId, ModelId] = Field(default_factory=dict, max_length=1024)
    state_dir: Path | None = None
    baseline: Literal["rr", "lr"] | None = None
    log: LogSettings = LogSettings()
    admin: AdminSettings = AdminSettings()
    recording: RecordingSettings = RecordingSettings()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ids = [gateway.id for gateway in self.gateways]
        twice = sorted({each for each in ids if ids.count(each) > 1})
        if twice:
            raise ValueError(f"gateways: two gateways have the same id {twice[0]!r}; give each its own")
        patterns = [pattern for gateway in self.gateways for pattern in set(gateway.nodes)]
        shared = sorted({each for each in patterns if patterns.count(each) > 1})
        if shared:
            raise ValueError(f"gateways: nodes: {shared[0]!r} stands under two gateways; leave it under one")
        return self

    @model_validator(mode="after")
    def _heard_in_time(self) -> Self:
        if self.lifecycle.ttl_s < 2 * self.cadence.liveness_s:
            raise ValueError(
                f"lifecycle.ttl_s is {self.lifecycle.ttl_s:g} and cadence.liveness_s "
                f"{self.cadence.liveness_s:g}: every agent would count as silent; "
                "ttl_s must be at least twice liveness_s"
            )
        return self


def load(path: Path | str) -> ControllerSettings:
    """Read the controller's settings file. Raises headrace_shared.config.ConfigError."""
    return config.load(path, ControllerSettings)
