"""The controller's settings file: every key, its unit and default."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, IPvAnyNetwork, model_validator

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
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/rerank",
    "/v2/rerank",
    "/score",
    "/pooling",
    "/classify",
    "/tokenize",
    "/detokenize",
)
ModelId = Annotated[str, Field(min_length=1, max_length=1024)]
HttpPath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._~/-]*$", max_length=256)]


class ListenSettings(Settings):
    """Where the controller listens: agents, Envoys, operators."""

    telemetry: HostPortField = HostPort("127.0.0.1", 18000)
    xds: HostPortField = HostPort("127.0.0.1", 18001)
    admin: HostPortField = HostPort("127.0.0.1", 18002)
    telemetry_tls: TlsSettings | None = None
    xds_tls: TlsSettings | None = None
    admin_tls: TlsSettings | None = None

    @model_validator(mode="after")
    def _apart(self) -> Self:
        seen: dict[HostPort, str] = {}
        for field in ("telemetry", "xds", "admin"):
            address: HostPort = getattr(self, field)
            if address.port and address in seen:
                raise ValueError(
                    f"listen.{field}: {address} is that of listen.{seen[address]} too; give each its own port"
                )
            seen[address] = field
        return self


NodePattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/*?\[\]!-]+$", max_length=128)]


class GatewaySettings(Settings):
    """One Envoy, or several at one place. `id` is their node id, and so is what the patterns of
    `nodes` (with * and ?) match; agents measure the path to `host`, by ICMP, or by TCP connects
    to `port` where ICMP is not allowed. `listen` is where the Envoy takes requests."""

    id: Name
    nodes: tuple[NodePattern, ...] = Field((), max_length=256)
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


class SiteSettings(Settings):
    """One site. Its cells may be at addresses in `networks` only (empty: anywhere); the nodes that
    `nodes` names, by patterns with * and ?, are here and at no other site (empty: any node that no
    other site names)."""

    networks: tuple[IPvAnyNetwork, ...] = Field((), max_length=256)
    nodes: tuple[NodePattern, ...] = Field((), max_length=4096)


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
    `drain_after_s` is drained, one of a pool at a time and only while half of the pool stays READY; an
    operator puts it back.
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
    constant of the smoothed score; while nothing changes, what is in force is the mean of up to
    `settle_s`, 0 = the smoothed score itself. The error rate is estimated over about `error_samples`
    requests, and counts once `error_min_samples` were seen. The TTFT at which a pool counts as full
    is its `ttft_slo_s` (pools.MODEL), else, with `learn_ttft`, `ttft_factor` times what its cells
    need without load, else the signal's `high`.
    """

    scorer: Literal["v2", "v3"] = "v3"
    signals: dict[str, RangeSettings] = Field(default_factory=dict)
    quorum: int = Field(3, ge=1, le=10)
    hold_s: float = Field(5.0, ge=0, le=600)
    decay_s: float = Field(30.0, gt=0, le=3600)
    stale_after_s: float = Field(5.0, ge=0.5, le=600)
    smoothing_s: float = Field(1.0, ge=0, le=60)
    settle_s: float = Field(300.0, ge=0, le=3600)
    error_samples: float = Field(50.0, ge=2, le=100000)
    error_min_samples: float = Field(5.0, ge=1, le=100000)
    learn_ttft: bool = True
    ttft_factor: float = Field(5.0, ge=1.2, le=100)
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

    `speed` goes by what each cell was seen to do, and by its headroom where its pressure is more than
    `spread` above its pool's. `headroom` goes by what each cell has left now, `sharpness` is the exponent
    of both. `equalise` moves
    log-weights by `gain` a second for each unit of pressure above or below the pool's, when it is
    more than `tolerance`. `deadband` is the relative change of a weight below which nothing is
    pushed; steady state pushes at most once per `push_interval_s`; a pressure that jumps by more
    than `emergency` is pushed at once. No push changes a weight by more than the factor
    `max_change`, except where a cell joins or ramps.
    """

    name: Literal["speed", "headroom", "equalise"] = "speed"
    max_weight: int = Field(100, ge=1, le=10000)
    sharpness: float = Field(3.0, ge=0.1, le=20)
    spread: float = Field(0.25, ge=0, le=1)
    gain: float = Field(0.1, gt=0, le=10)
    tolerance: float = Field(0.03, ge=0, le=0.5)
    max_change: float = Field(2.0, ge=1.1, le=10000)
    deadband: float = Field(0.1, ge=0, le=1)
    push_interval_s: float = Field(1.0, ge=0.05, le=60)
    emergency: float = Field(0.3, gt=0, le=1)


class CapabilitySettings(Settings):
    """Cells of one pool that take prompts of different lengths, in tokens (`max_model_len`).

    With `classes` a request that is likely not to fit goes only to cells which it fits: by the size of its
    body, at `bytes_per_token`, and the output that it asks for. That figure is where each class starts;
    with `learn` it moves between `least_` and `most_bytes_per_token` by what cells refuse, as gateways
    report. `reserve_tokens` of each length are left for templates. `max_classes`: closer lengths are
    taken together.
    """

    classes: bool = True
    max_classes: int = Field(4, ge=2, le=8)
    bytes_per_token: float = Field(1.5, ge=0.1, le=100)
    learn: bool = True
    least_bytes_per_token: float = Field(1.0, ge=0.1, le=100)
    most_bytes_per_token: float = Field(8.0, ge=0.1, le=100)
    reserve_tokens: int = Field(64, ge=0, le=65536)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.least_bytes_per_token <= self.bytes_per_token <= self.most_bytes_per_token:
            raise ValueError(
                f"bytes_per_token is {self.bytes_per_token:g}; it must lie between least_bytes_per_token "
                f"({self.least_bytes_per_token:g}) and most_bytes_per_token ({self.most_bytes_per_token:g})"
            )
        return self


class EnvoySettings(Settings):
    """What the generated Envoy config carries; seconds and bytes.

    Only `paths` reach the engines: an engine's other paths put it to sleep or load adapters. A streamed
    request whose answer has not begun `hedge_after_s` after it was sent is asked of another endpoint as
    well, and the answer that begins first is passed on; 0 = never.
    `expose_upstream` adds the serving endpoint's address to each response, for tests and labs.
    `baseline_retries` gives the gateways of a `baseline` the same retries as ours, which a plain Envoy
    has not.
    """

    paths: tuple[HttpPath, ...] = Field(GENERATION_PATHS, min_length=1, max_length=64)

    connect_timeout_s: float = Field(0.25, gt=0, le=10)
    retries: int = Field(2, ge=0, le=10)
    hedge_after_s: float = Field(1.0, ge=0, le=60)
    stream_idle_timeout_s: float = Field(900.0, ge=1, le=86400)
    upstream_idle_timeout_s: float = Field(4.0, gt=0, le=3600)
    max_request_bytes: int = Field(33554432, ge=65536, le=1073741824)
    health_checks: bool = True
    health_check_interval_s: float = Field(1.0, ge=0.1, le=60)
    health_check_timeout_s: float = Field(1.0, ge=0.1, le=60)
    retry_after_s: int = Field(1, ge=1, le=3600)
    expose_upstream: bool = False
    baseline_retries: bool = False


class GatewayReportsSettings(Settings):
    """What Envoys report back of the requests they carried; seconds and bytes.

    With `enabled` the generated Envoy config sends the controller's xDS port a record of each request,
    every `flush_s`, and the load of each endpoint, every `load_interval_s`. An Envoy that cannot send
    keeps up to `buffer_bytes` a worker and drops the rest. Above `max_records_per_s` the controller
    reads a sample. A cell's errors are judged by what gateways saw as long as they have carried a
    request to it within `trust_s`, else by what its agent says. An answer that a gateway had from a
    cell of a silent agent within `alive_s` shows that it lives.
    """

    enabled: bool = True
    flush_s: float = Field(0.2, ge=0.1, le=1)
    buffer_bytes: int = Field(65536, ge=4096, le=2097152)
    max_records_per_s: float = Field(2000.0, ge=1, le=1000000)
    load_interval_s: float = Field(1.0, ge=0.1, le=60)
    trust_s: float = Field(60.0, ge=1, le=3600)
    alive_s: float = Field(0.5, ge=0.1, le=10)

    @model_validator(mode="after")
    def _told_in_time(self) -> Self:
        # A record may have waited for one flush when it comes, and the next comes a flush later.
        if self.alive_s < 2 * self.flush_s:
            raise ValueError(
                f"alive_s is {self.alive_s:g} and flush_s {self.flush_s:g}: an answer would be too old when "
                "it is told; alive_s must be at least twice flush_s"
            )
        return self


class PickerSettings(Settings):
    """The picker: it names a cell for each request, by its predicted time to first token.

    An Envoy waits for it for `timeout_s` and then goes by the weights, as it does for the share `trickle`
    of the requests, which keeps evidence coming of cells that would not be named. Cells that cost at most
    `tolerance` more than the cheapest are equal. `balance`: a request whose session was at a cell goes
    there as long as that costs at most so much more than the cheapest; 0 = only where it is as good, and
    the more, the more caches are used and the less load is balanced. A session is what the header
    `session_header` says, else `user` in the body. With `prefix_affinity` bodies are read too, and cells
    that computed the same beginning count as holding it, by blocks of `prefix_block_bytes`. Up to
    `fallbacks` other cells are named for retries. Until it has learned better a token is
    `bytes_per_token` bytes and a cell computes `prefill_tokens_per_s`. A picker of which more than one
    pick in twenty takes longer than `slow_pick_s`, or whose figures are worse than a plain guess, stands
    aside for a while. A request without an answer counts for `expiry_s`.
    """

    enabled: bool = False
    timeout_s: float = Field(0.025, ge=0.002, le=0.05)
    trickle: float = Field(0.01, ge=0, le=0.5)
    tolerance: float = Field(0.1, ge=0, le=2)
    balance: float = Field(0.5, ge=0, le=10)
    session_header: str = Field("x-session-id", pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    prefix_affinity: bool = False
    prefix_block_bytes: int = Field(2048, ge=256, le=65536)
    fallbacks: int = Field(2, ge=0, le=8)
    bytes_per_token: float = Field(4.0, ge=0.5, le=16)
    prefill_tokens_per_s: float = Field(8000.0, ge=10, le=10_000_000)
    slow_pick_s: float = Field(0.01, ge=0.0005, le=0.05)
    expiry_s: float = Field(120.0, ge=5, le=3600)


class UpstreamTlsSettings(TlsSettings):
    """How gateways, and the controller's own questions, speak TLS with a pool's engines.

    The files are read by the controller. With `ca` an engine's certificate must be signed by it; without
    it the connection is encrypted and nobody's identity is checked. `server_name` is asked for (SNI), and
    with `ca` it must stand in the certificate. `cert` and `key` are shown to engines that ask for them.
    """

    server_name: str | None = Field(
        None, pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$", max_length=253
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("give both cert and key, or neither")
        return self


class PoolSettings(Settings):
    """What is special to the cells of one model.

    With `tls` all of them are reached by TLS, whatever their agents say; without it those whose agents
    say so, and their certificates are not checked. `api_key_file` holds the key that gateways add to
    requests and health checks (`Authorization: Bearer`), in place of what the client sent.
    `ttft_slo_s` is the time to first token at which its cells count as full; without it, it is learned.
    """

    tls: UpstreamTlsSettings | None = None
    api_key_file: Path | None = None
    ttft_slo_s: float | None = Field(None, gt=0, le=3600)


class TokenSettings(Settings):
    """One token of the operators' API. `file` holds it alone on its first line, 16 characters at least;
    `name` stands for it in the account of what was done. A viewer may look, an operator may also act."""

    name: Name
    role: Literal["viewer", "operator"]
    file: Path


class AdminSettings(Settings):
    """Who may use the operators' API. Without tokens only this machine may, and may do everything.

    `open_metrics` leaves /metrics to anybody; /healthz and /readyz always are. `account_acts` is how
    many acts are kept in state_dir.
    """

    tokens: tuple[TokenSettings, ...] = Field((), max_length=64)
    open_metrics: bool = False
    account_acts: int = Field(10_000, ge=100, le=1_000_000)

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        names = [token.name for token in self.tokens]
        twice = sorted({each for each in names if names.count(each) > 1})
        if twice:
            raise ValueError(f"tokens: two tokens have the same name {twice[0]!r}; give each its own")
        return self


class RecordingSettings(Settings):
    """The recording in state_dir: beats and decisions, for `headrace replay`.

    Files of at most `segment_s` seconds, `max_bytes` together; the oldest goes first. A node's beats
    are thinned out where all nodes' come to more than `max_beats_per_s`.
    """

    enabled: bool = True
    max_bytes: int = Field(67_108_864, ge=1_048_576, le=1_099_511_627_776)
    segment_s: float = Field(600.0, ge=1, le=86400)
    max_beats_per_s: float = Field(200.0, ge=1, le=100_000)


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
