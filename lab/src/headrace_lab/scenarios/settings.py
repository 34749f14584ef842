"""Arms, the gateway's constants, how figures are counted, and the scenarios themselves."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headrace_lab.scenarios.timelines import FaultTimes
from headrace_shared.config import Name, Settings

Balancer = Literal["round_robin", "least_request", "weights", "prefix_hash", "oracle"]
Mode = Literal["live", "sim"]


class Arm(Settings):
    """What one arm has; see the table of arms in the lab's page.

    `scorer` and `projection` are "" for the project's default; `picker` = the fast loop as well, which
    reads bodies where `prefixes` is set; `pickers` of so many controllers share the load (sim only).
    `lifecycle` = endpoints leave by heartbeats and events; `classes` = capability classes and early
    warning. A `peer` is another project's router in the place of Envoy and all of ours, as it comes but
    for its `policy`, "" for its own default.
    """

    note: str = ""
    balancer: Balancer
    retries: bool
    lifecycle: bool
    classes: bool = False
    scorer: Literal["", "v2", "v3"] = ""
    projection: Literal["", "headroom", "equalise"] = ""
    peer: Literal["", "vllm-router", "sglang-router"] = ""
    policy: Literal["", "round_robin", "power_of_two", "cache_aware"] = ""
    picker: bool = False
    prefixes: bool = False
    pickers: int = Field(1, ge=1, le=64)
    modes: tuple[Mode, ...] = ("live", "sim")


class GatewayPlan(Settings):
    """Envoy's constants that a model of it needs; times in seconds."""

    health_interval_s: float = Field(1.0, gt=0, le=60)
    health_timeout_s: float = Field(1.0, gt=0, le=60)
    health_failures: int = Field(3, ge=1, le=100)
    no_traffic_interval_s: float = Field(1.0, gt=0, le=600)
    connect_timeout_s: float = Field(0.25, gt=0, le=60)
    retries: int = Field(2, ge=0, le=10)
    hedge_after_s: float = Field(1.0, ge=0, le=60)
    choices: int = Field(2, ge=2, le=100)
    """Hosts that least-request looks at."""


class ClientPlan(Settings):
    """The load's clients. A failed request is tried again after `retry_after_s` where a scenario
    measures rerouting, at most `attempts` times in all; there an attempt without a first token
    after `attempt_timeout_s` has failed, or a hung engine would hold its client for ever."""

    timeout_s: float = Field(60.0, gt=0, le=3600)
    attempt_timeout_s: float = Field(10.0, gt=0, le=3600)
    retry_after_s: float = Field(0.25, ge=0, le=60)
    attempts: int = Field(40, ge=1, le=1000)
    in_flight: int = Field(2048, ge=1, le=100_000)


class Counting(Settings):
    """Which requests count, and what a rate must hold to be sustained."""

    warm_up_s: float = Field(30.0, ge=0, le=3600)
    counted_s: float = Field(45.0, gt=0, le=86_400)
    cool_down_s: float = Field(15.0, ge=0, le=3600)
    least_samples: int = Field(500, ge=1, le=1_000_000)
    success: float = Field(0.95, gt=0, le=1)
    quantile: float = Field(0.95, gt=0, lt=1)
    bisections: int = Field(10, ge=1, le=64)
    repetitions: int = Field(3, ge=1, le=1000)
    resamples: int = Field(10_000, ge=100, le=1_000_000)
    confidence: float = Field(0.95, gt=0, lt=1)
    margin: float = Field(0.05, ge=0, lt=1)
    unloaded_rps: float = Field(0.2, gt=0, le=1000)
    unloaded_samples: int = Field(200, ge=20, le=100_000)
    gap_s: float = Field(5.0, gt=0, le=3600)


class Variant(Settings):
    """A variation of a scenario: what is named here replaces the scenario's own."""

    note: str = ""
    fleet: Name | None = None
    load: Name | None = None
    rps: float | None = Field(None, gt=0, le=1000)


class HealthNoise(Settings):
    """What healthy GPUs show: drawn anew every `every_s`. `cooling` is the standard deviation of the share
    of its cooling that a GPU has, the rates are those of single PCIe replays and corrected memory errors."""

    every_s: float = Field(2.0, gt=0, le=600)
    cooling: float = Field(0.04, ge=0, le=0.2)
    replays_per_min: float = Field(1.0, ge=0, le=60)
    ecc_per_min: float = Field(0.05, ge=0, le=60)


class LiveLead(Settings):
    """`lead-time` live, where each stress strikes one cell after the other in real time: the stresses' time
    lines are compressed as the GPUs' time constant is, and the cell has `rest_s` after each. The SLO is that
    of `tier`, from what the same fleet took in `unloaded_s` of the unloaded rate."""

    time_constant_s: float = Field(4.0, gt=0, le=3600)
    first_s: float = Field(20.0, gt=0, le=3600)
    rest_s: float = Field(20.0, gt=0, le=3600)
    unloaded_s: float = Field(60.0, gt=0, le=3600)
    tier: Name = "middle"
    seconds: float = Field(1050.0, gt=0, le=86_400)


class LeadPlan(Settings):
    """Constants of `lead-time`: thermal time constants, and the hours of the false-alarm test."""

    stresses: tuple[Name, ...] = Field(min_length=1)
    reference_time_constant_s: float = Field(gt=0, le=3600)
    time_constants_s: tuple[float, ...] = Field(min_length=1)
    healthy_hours: float = Field(gt=0, le=10_000)
    noise: HealthNoise = HealthNoise()
    live: LiveLead = LiveLead()


class Scenario(Settings):
    """One scenario. `seconds` is the length of the load of each arm when it runs live.

    `networks` are run one after the other, each figure with its name as suffix; the others run
    on `network`. `exporters` = each exporter is silenced in turn, at `faults`.
    """

    note: str = ""
    fleet: Name
    load: Name = "baseline_mixed"
    rps: float = Field(10.0, gt=0, le=10_000)
    seconds: float = Field(60.0, gt=0, le=86_400)
    arms: tuple[Name, ...] = Field(("rr", "lr", "weights"), min_length=1)
    network: Name = "regional"
    networks: tuple[Name, ...] = ()
    kinds: tuple[Name, ...] = ()
    faults: FaultTimes | None = None
    finds_sustainable: bool = False
    warm_up_s: float = Field(10.0, ge=0, le=3600)
    variants: dict[Name, Variant] = Field(default_factory=dict)
    lead: LeadPlan | None = None
    modes: tuple[Mode, ...] = ("live", "sim")
