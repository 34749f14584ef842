"""The agent's settings file: every key, its unit and default, and the checks that span keys."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headrace_shared import config
from headrace_shared.config import Name, Settings
from headrace_shared.log import LogSettings
from headrace_shared.net import HostPort, HostPortField
from headrace_shared.tls import TlsSettings


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write a URL with scheme and host, as in http://127.0.0.1:8000")
    if parts.port == 0:  # raises ValueError where the port is no number
        raise ValueError("no server has port 0; write the one that it listens on")
    return text.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]


def without_secrets(url: str) -> str:
    """A URL as logs, beats and people may see it: without the user and password that it may hold."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


MAX_GPUS = 64
MAX_NODES = 64
MAX_LABELS = 64
MAX_LABEL = 1024
MAX_CONTROLLERS = 16


def _gpu(ref: object) -> object:
    if isinstance(ref, bool) or not isinstance(ref, str | int) or ref == "":
        raise ValueError("write the GPU's index, its UUID or the start of one")
    if isinstance(ref, int) and ref < 0:
        raise ValueError("a GPU's index is 0 or more")
    return ref


def _each_once(gpus: tuple[str | int, ...]) -> tuple[str | int, ...]:
    twice = [gpu for gpu in dict.fromkeys(gpus) if gpus.count(gpu) > 1]
    if twice:
        raise ValueError(f"GPU {twice[0]} stands twice; name each once")
    return gpus


Gpu = Annotated[str | int, BeforeValidator(_gpu)]
Gpus = Annotated[tuple[Gpu, ...], Field(max_length=MAX_GPUS), AfterValidator(_each_once)]
"""GPUs by index, UUID or the start of one; a MIG instance as `UUID:INSTANCE`."""

Label = Annotated[str, Field(max_length=MAX_LABEL)]


class EngineTlsSettings(TlsSettings):
    """How an https engine is known, and how the agent shows itself to it.

    Without `ca` the system's authorities are trusted. `server_name` is the name that the engine's
    certificate must carry (default: the host of the cell's `url`).
    """

    server_name: str | None = Field(None, min_length=1, max_length=253)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("give both cert and key, or neither")
        return self


class CellSettings(Settings):
    """One engine on this host.

    `url` is where the agent reaches it; `advertise` is where gateways do (default: the host and
    port of `url`) and must be an IP address. `gpus` names the GPUs under it by UUID or index; none
    means that no hardware figure belongs to it. `nodes` names the other hosts that the engine runs
    on too: their agents, and no others, may report as its members. `kind` overrides the detection
    from the metrics page, and `metrics_url` is where that page is, if not under `url`. `api_key_file`
    holds the key that the agent's own calls carry where the engine asks for one; `tls` belongs to
    an https `url`.
    """

    id: Name
    url: HttpUrl
    advertise: HostPortField | None = None
    gpus: Gpus = ()
    nodes: tuple[Name, ...] = Field((), max_length=MAX_NODES)
    kind: Literal["auto", "vllm", "sglang", "tensorrt-llm", "triton", "tgi", "llamacpp"] = "auto"
    metrics_url: HttpUrl | None = None
    labels: dict[Label, Label] = Field(default_factory=dict, max_length=MAX_LABELS)
    api_key_file: Path | None = None
    tls: EngineTlsSettings | None = None

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
            ip = ipaddress.ip_address(self.address.host)
        except ValueError as error:
            raise ValueError(
                f"gateways need an IP address and {self.address.host!r} is a name; "
                "set advertise to the address at which gateways reach this engine"
            ) from error
        scoped = isinstance(ip, ipaddress.IPv6Address) and ip.scope_id is not None
        if ip.is_unspecified or ip.is_multicast or ip.is_link_local or scoped or not self.address.port:
            raise ValueError(
                f"gateways cannot reach {self.address}; set advertise to an address and port of this "
                "engine that they can"
            )
        return self

    @model_validator(mode="after")
    def _url_fits(self) -> Self:
        parts = urlsplit(self.url)
        if parts.query or parts.fragment:
            raise ValueError("url has a query or a fragment, which is not sent; write the address without it")
        return self

    @model_validator(mode="after")
    def _page_fits(self) -> Self:
        if self.metrics_url is not None and urlsplit(self.metrics_url).query:
            raise ValueError("metrics_url has a query, which is not sent; write the address without it")
        return self

    @model_validator(mode="after")
    def _tls_fits(self) -> Self:
        if self.tls is not None and not self.url.startswith("https:"):
            raise ValueError("tls is set and the url is not https; write https:// in url, or remove tls")
        return self


class MemberSettings(Settings):
    """GPUs of this host under an engine that another host's agent speaks for.

    `cell` is the cell's id there, whose `nodes` must name this node.
    """

    cell: Name
    gpus: Gpus = Field(min_length=1)


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


def _off(value: object) -> object:
    """YAML reads an unquoted `off` as false, and `on` as true."""
    if value is True:
        raise ValueError("true (in YAML also on and yes) is none of the choices; write auto or off")
    return "off" if value is False else value


Off = BeforeValidator(_off)
"""For a choice of words of which `off` is one."""


class HardwareSettings(Settings):
    """Where GPU figures come from: a DCGM exporter first, NVML second.

    `dcgm_url` is the exporter's metrics page; absent, NVML alone is used. `nvml: auto` uses NVML
    where its library loads.
    """

    dcgm_url: HttpUrl | None = None
    dcgm_interval_s: float = Field(0.5, ge=0.1, le=60)
    dcgm_timeout_s: float = Field(1.0, gt=0, le=30)
    nvml: Annotated[Literal["auto", "off"], Off] = "auto"
    nvml_interval_s: float = Field(0.5, ge=0.1, le=60)


class NetworkSettings(Settings):
    """How the paths to the gateways are measured; the controller names the gateways.

    `auto` tries ICMP and falls back to TCP connects where ICMP is not allowed.
    """

    method: Annotated[Literal["auto", "icmp", "tcp", "off"], Off] = "auto"
    interval_s: float = Field(0.5, ge=0.1, le=60)
    timeout_s: float = Field(1.0, gt=0, le=30)


class ControllerSettings(Settings):
    """One controller to stream to. Several are independent of each other."""

    address: HostPortField
    tls: TlsSettings | None = None

    @model_validator(mode="after")
    def _dialable(self) -> Self:
        if self.address.port == 0:
            raise ValueError("address has port 0; write that of the controller's listen.telemetry")
        return self


class AgentSettings(Settings):
    """The whole file. A host without an engine's server of its own has `members` only."""

    node: Name
    site: Name
    controllers: tuple[ControllerSettings, ...] = Field(min_length=1, max_length=MAX_CONTROLLERS)
    cells: tuple[CellSettings, ...] = Field((), max_length=256)
    members: tuple[MemberSettings, ...] = Field((), max_length=256)
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
        addresses = [str(each.address) for each in self.controllers]
        twice = sorted({address for address in addresses if addresses.count(address) > 1})
        if twice:
            raise ValueError(f"controllers: {twice[0]} stands twice; name each once")
        return self

    @model_validator(mode="after")
    def _speaks_for_something(self) -> Self:
        if not self.cells and not self.members:
            raise ValueError(
                "cells: there are none, and no members; add an entry to cells for each engine on this "
                "host, or to members for each engine of another host that runs on GPUs of this one"
            )
        return self

    @model_validator(mode="after")
    def _members_elsewhere(self) -> Self:
        own = {cell.id for cell in self.cells}
        cells = [member.cell for member in self.members]
        for cell_id in cells:
            if cell_id in own:
                raise ValueError(
                    f"members: {cell_id!r} is a cell of this file; name all its GPUs of this host in its gpus"
                )
            if cells.count(cell_id) > 1:
                raise ValueError(f"members: cell {cell_id!r} stands twice; name its GPUs in one entry")
        for cell in self.cells:
            if self.node in cell.nodes:
                raise ValueError(
                    f"cells: {cell.id}: nodes names this host, {self.node!r}; name the other hosts only"
                )
            if len(set(cell.nodes)) < len(cell.nodes):
                raise ValueError(f"cells: {cell.id}: a node stands twice in nodes; name each once")
        return self

    def warnings(self) -> tuple[str, ...]:
        """What can be used and is likely a mistake, with its remedy."""
        remote = [each.address for each in self.controllers if not each.address.is_loopback]
        if not remote:
            return ()
        return tuple(
            f"cells: {cell.id}: gateways on other hosts cannot reach {cell.address}, and the controller at "
            f"{remote[0]} refuses it; set advertise to this host's address as gateways see it"
            for cell in self.cells
            if cell.address.is_loopback
        )


def load(path: Path | str) -> AgentSettings:
    """Read the agent's settings file. Raises headrace_shared.config.ConfigError."""
    return config.load(path, AgentSettings)
