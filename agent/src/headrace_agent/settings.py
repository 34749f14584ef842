"""The agent's settings file: every key, its unit and default, and the checks that span keys."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from headrace_shared import config
from headrace_shared.config import Name, Settings
from headrace_shared.log import LogSettings
from headrace_shared.net import HostPort, HostPortField
from headrace_shared.tls import TlsSettings


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write a URL with scheme and host, as in http://127.0.0.1:8000")
    _ = parts.port  # raises ValueError where the port is no number
    return text.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]


class CellSettings(Settings):
    """One engine on this host.

    `url` is where the agent reaches it; `advertise` is where gateways do (default: the host and
    port of `url`) and must be an IP address. `gpus` names the GPUs under it by UUID or index; none
    means that no hardware figure belongs to it. `kind` overrides the detection from the metrics
    page. `api_key_file` holds the key that the agent's own completions carry.
    """

    id: Name
    url: HttpUrl
    advertise: HostPortField | None = None
    gpus: tuple[str | int, ...] = ()
    kind: Literal["auto", "vllm"] = "auto"
    labels: dict[str, str] = Field(default_factory=dict)
    api_key_file: Path | None = None

    @property
    def address(self) -> HostPort:
        """Where gateways reach the engine: an IP address and a port."""
        if self.advertise is not None:
            return self.advertise
        parts = urlsplit(self.url)
        host = "127.0.0.1" if parts.hostname == "localhost" else str(parts.hostname)
        return HostPort(host, parts.port or (443 if parts.scheme == "https" else 80))

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        try:
            ipaddress.ip_address(self.address.host)
        except ValueError as error:
            raise ValueError(
                f"gateways need an IP address and {self.address.host!r} is a name; "
                "set advertise to the address at which gateways reach this engine"
            ) from error
        return self


class EngineSettings(Settings):
    """Cadences for every engine, in seconds.

    `ttft_window_s` is the sliding window of the P95; `warm_up` asks one real completion of an
    engine before it is called SERVING; `hung_after_s` is how long an engine may leave a health
    probe unanswered.
    """

    scrape_interval_s: float = Field(0.5, ge=0.1, le=60)
    probe_interval_s: float = Field(0.1, ge=0.02, le=10)
    scrape_timeout_s: float = Field(2.0, gt=0, le=60)
    facts_interval_s: float = Field(10.0, ge=0.5, le=600)
    ttft_window_s: float = Field(30.0, ge=2, le=600)
    hung_after_s: float = Field(2.0, ge=0.2, le=60)
    warm_up: bool = True
    warm_up_timeout_s: float = Field(30.0, gt=0, le=600)


class HardwareSettings(Settings):
    """Where GPU figures come from: a DCGM exporter first, NVML second.

    `dcgm_url` is the exporter's metrics page; absent, NVML alone is used. `nvml: auto` uses NVML
    where its library loads.
    """

    dcgm_url: HttpUrl | None = None
    dcgm_interval_s: float = Field(0.25, ge=0.1, le=60)
    dcgm_timeout_s: float = Field(1.0, gt=0, le=30)
    nvml: Literal["auto", "off"] = "auto"
    nvml_interval_s: float = Field(0.5, ge=0.1, le=60)


class NetworkSettings(Settings):
    """How the paths to the gateways are measured; the controller names the gateways.

    `auto` tries ICMP and falls back to TCP connects where ICMP is not allowed.
    """

    method: Literal["auto", "icmp", "tcp", "off"] = "auto"
    interval_s: float = Field(0.5, ge=0.1, le=60)
    timeout_s: float = Field(1.0, gt=0, le=30)


class ControllerSettings(Settings):
    """One controller to stream to. Several are independent of each other."""

    address: HostPortField
    tls: TlsSettings | None = None


class AgentSettings(Settings):
    """The whole file."""

    node: Name
    site: Name
    controllers: tuple[ControllerSettings, ...] = Field(min_length=1, max_length=16)
    cells: tuple[CellSettings, ...] = Field(min_length=1, max_length=256)
    engine: EngineSettings = EngineSettings()
    hardware: HardwareSettings = HardwareSettings()
    network: NetworkSettings = NetworkSettings()
    metrics_listen: HostPortField | None = None
    goodbye_grace_s: float = Field(30.0, ge=0, le=3600)
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for what, values in (
            ("id", [cell.id for cell in self.cells]),
            ("advertised address", [str(cell.address) for cell in self.cells]),
        ):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise ValueError(f"cells: two cells have the same {what} {twice[0]!r}; give each its own")
        return self


def load(path: Path | str) -> AgentSettings:
    """Read the agent's settings file. Raises headrace_shared.config.ConfigError."""
    return config.load(path, AgentSettings)
