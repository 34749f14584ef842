"""The controller's settings file: every key, its unit and default."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headrace_shared import config
from headrace_shared.config import Name, Settings
from headrace_shared.log import LogSettings
from headrace_shared.net import HostPort, HostPortField
from headrace_shared.signals import INDEX, NAMES, NETWORK_SIGNALS, SIGNALS
from headrace_shared.tls import TlsSettings

GENERATION_PATHS = (
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/tokenize",
    "/detokenize",
)
HttpPath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._~/-]*$", max_length=256)]


class ListenSettings(Settings):
    """Where the controller listens: agents, Envoys, operators."""

    telemetry: HostPortField = HostPort("127.0.0.1", 18000)
    xds: HostPortField = HostPort("127.0.0.1", 18001)
    admin: HostPortField = HostPort("127.0.0.1", 18002)
    telemetry_tls: TlsSettings | None = None
    xds_tls: TlsSettings | None = None


class GatewaySettings(Settings):
    """One Envoy. `id` is its node id; agents measure the path to `host`, by ICMP, or by TCP
    connects to `port` where ICMP is not allowed. `listen` is where the Envoy takes requests."""

    id: Name
    host: str = Field(min_length=1, max_length=253)
    port: int = Field(0, ge=0, le=65535)
    listen: HostPortField = HostPort("0.0.0.0", 10000)

    @model_validator(mode="after")
    def _bindable(self) -> Self:
        try:
            ipaddress.ip_address(self.listen.host)
        except ValueError as error:
            raise ValueError(
                f"listen: {self.listen.host!r} is no IP address, and an Envoy binds only to one; "
                "write 127.0.0.1, 0.0.0.0 or [::]"
            ) from error
        return self


class CadenceSettings(Settings):
    """What agents are asked to keep, and the controller's own tick; seconds."""

    telemetry_s: float = Field(0.5, ge=0.1, le=10)
    liveness_s: float = Field(0.1, ge=0.02, le=10)
    tick_s: float = Field(0.05, ge=0.01, le=1)


class LifecycleSettings(Settings):
    """The life of a cell; seconds unless said otherwise.

    `ttl_s`: silence after which the agent counts as silent. `on_silence`: confirm asks the engine
    itself before failing its cell; fail does not ask. `ramp_s`: a freshly loaded cell's weight
    rises over it. `hold_down_s` doubles up to `hold_down_max_s` for a flapping cell and is
    forgotten after `flap_memory_s` of calm. `retention_s`: how long a FAILED or TERMINATED cell
    is remembered. `self_preservation_share`: when more than this share of the READY cells falls
    silent within `self_preservation_window_s` with no sign that their engines died, weights hold.
    """

    ttl_s: float = Field(0.5, ge=0.1, le=60)
    on_silence: Literal["confirm", "fail"] = "confirm"
    confirm_timeout_s: float = Field(0.1, ge=0.01, le=10)
    confirm_interval_s: float = Field(0.5, ge=0.1, le=60)
    ramp_s: float = Field(10.0, ge=0, le=600)
    hold_down_s: float = Field(1.0, ge=0, le=600)
    hold_down_max_s: float = Field(60.0, ge=0, le=3600)
    flap_memory_s: float = Field(120.0, ge=1, le=86400)
    drain_deadline_s: float = Field(300.0, ge=0, le=86400)
    retention_s: float = Field(600.0, ge=1, le=604800)
    barrier_s: float = Field(3.0, ge=0, le=300)
    self_preservation_share: float = Field(0.5, gt=0, le=1)
    self_preservation_window_s: float = Field(2.0, gt=0, le=60)
    history: int = Field(64, ge=4, le=4096)


class RangeSettings(Settings):
    """Overrides one signal's range (its unit is the catalogue's) or its weight."""

    low: float | None = None
    high: float | None = None
    weight: float | None = Field(None, ge=0, le=1)


class EarlyWarningSettings(Settings):
    """What GPUs say before the engine's own figures move.

    An alert adds up to `weight` to a cell's pressure. `thermal_margin_c` is the distance to the
    thermal limit that a falling margin should keep, in degrees. An alert without fresh figures
    fades with the time constant `forget_s`. With `drain`, a cell whose alert has lasted for
    `drain_after_s` is drained, one of a pool at a time and never the last READY one; an operator
    puts it back.
    """

    enabled: bool = True
    weight: float = Field(0.25, ge=0, le=1)
    thermal_margin_c: float = Field(10.0, gt=0, le=50)
    forget_s: float = Field(30.0, gt=0, le=3600)
    drain: bool = False
    drain_after_s: float = Field(30.0, ge=0, le=86400)


class PressureSettings(Settings):
    """How signals become one pressure.

    `quorum` is the least number of signals that score a cell; below it the last score is held for
    `hold_s` and then decays to the pool's median over `decay_s`. `smoothing_s` is the time
    constant of the smoothed score. The error rate is estimated over about `error_samples`
    requests, and counts once `error_min_samples` were seen.
    """

    scorer: Literal["v2", "v3"] = "v3"
    signals: dict[str, RangeSettings] = Field(default_factory=dict)
    quorum: int = Field(3, ge=1, le=10)
    hold_s: float = Field(5.0, ge=0, le=600)
    decay_s: float = Field(30.0, gt=0, le=3600)
    stale_after_s: float = Field(5.0, ge=0.5, le=600)
    smoothing_s: float = Field(1.0, ge=0, le=60)
    error_samples: float = Field(50.0, ge=2, le=100000)
    error_min_samples: float = Field(10.0, ge=1, le=100000)
    early_warning: EarlyWarningSettings = EarlyWarningSettings()

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name, change in self.signals.items():
            if name not in INDEX:
                raise ValueError(f"signals: {name!r} is no signal; the signals are {', '.join(NAMES)}")
            signal = SIGNALS[INDEX[name]]
            low = signal.low if change.low is None else change.low
            high = signal.high if change.high is None else change.high
            if low >= high:
                raise ValueError(f"signals: {name}: low is {low:g} and high {high:g}; low must be below high")
        scored = [each.name for each in SIGNALS if self.scorer == "v3" or each.name not in NETWORK_SIGNALS]
        if all(name in self.signals and self.signals[name].weight == 0 for name in scored):
            raise ValueError(
                f"signals: every weight of scorer {self.scorer} is 0; leave at least one above 0"
            )
        return self


class ProjectionSettings(Settings):
    """How pressure becomes weights 1 … `max_weight`, and when they are pushed.

    `headroom` goes by what each cell has left now, `sharpness` is its exponent. `equalise` moves
    log-weights by `gain` a second for each unit of pressure above or below the pool's, when it is
    more than `tolerance`. `deadband` is the relative change of a weight below which nothing is
    pushed; steady state pushes at most once per `push_interval_s`; a pressure that jumps by more
    than `emergency` is pushed at once. No push changes a weight by more than the factor
    `max_change`, except where a cell joins or ramps.
    """

    name: Literal["headroom", "equalise"] = "headroom"
    max_weight: int = Field(100, ge=1, le=10000)
    sharpness: float = Field(3.0, ge=0.1, le=20)
    gain: float = Field(1.0, gt=0, le=10)
    tolerance: float = Field(0.03, ge=0, le=0.5)
    max_change: float = Field(2.0, ge=1.1, le=10000)
    deadband: float = Field(0.1, ge=0, le=1)
    push_interval_s: float = Field(1.0, ge=0.05, le=60)
    emergency: float = Field(0.3, gt=0, le=1)


class EnvoySettings(Settings):
    """What the generated Envoy config carries; seconds and bytes.

    Only `paths` reach the engines: an engine's other paths put it to sleep or load adapters.
    `expose_upstream` adds the serving endpoint's address to each response, for tests and labs.
    """

    paths: tuple[HttpPath, ...] = Field(GENERATION_PATHS, min_length=1, max_length=64)

    connect_timeout_s: float = Field(0.25, gt=0, le=10)
    retries: int = Field(2, ge=0, le=10)
    stream_idle_timeout_s: float = Field(900.0, ge=1, le=86400)
    upstream_idle_timeout_s: float = Field(4.0, gt=0, le=3600)
    max_request_bytes: int = Field(33554432, ge=65536, le=1073741824)
    health_checks: bool = True
    health_check_interval_s: float = Field(1.0, ge=0.1, le=60)
    health_check_timeout_s: float = Field(1.0, ge=0.1, le=60)
    retry_after_s: int = Field(1, ge=1, le=3600)
    expose_upstream: bool = False


class ControllerSettings(Settings):
    """The whole file. `state_dir` keeps the last fleet for a warm start; without it a restart
    starts cold. `baseline` makes the gateways a plain Envoy (rr or lr), for comparison."""

    region: Name = "default"
    listen: ListenSettings = ListenSettings()
    gateways: tuple[GatewaySettings, ...] = Field(min_length=1, max_length=64)
    cadence: CadenceSettings = CadenceSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    pressure: PressureSettings = PressureSettings()
    projection: ProjectionSettings = ProjectionSettings()
    envoy: EnvoySettings = EnvoySettings()
    state_dir: Path | None = None
    baseline: Literal["rr", "lr"] | None = None
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ids = [gateway.id for gateway in self.gateways]
        twice = sorted({each for each in ids if ids.count(each) > 1})
        if twice:
            raise ValueError(f"gateways: two gateways have the same id {twice[0]!r}; give each its own")
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
