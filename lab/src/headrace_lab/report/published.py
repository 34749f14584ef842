"""The published figures of a system of this architecture, and where ours are found.

What they measured and how is in the docs' page on the report; where their set-up differs from ours a
note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["share", "ms", "s", "ratio", "us", "number"]
CITATION: Final = (
    "Published reference figures for this architecture: one closed system on real GPUs, 6 and then 9 of them "
    "at 3 sites. Ours are from simulated engines on one machine; compare ratios, not absolute times."
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One published figure. `theirs` and `plain` are its published values, for that system and for
    round-robin and least-request there; `figure` names ours, with {arm} where it is an arm's own. `note`
    says what is not alike. `command` makes the result, with {out} for its place."""

    what: str
    theirs: str
    plain: str
    scenario: str
    figure: str
    unit: Unit
    command: str
    kind: str = ""
    variant: str = ""
    modes: tuple[str, ...] = ("live", "sim")
    note: str = ""
    short: bool = False
    """Whether the README's table has it."""


CAPABILITY: Final = "headrace-lab live capability --arms rr,lr,v3,weights --json {out}/capability.json"
KILL: Final = (
    "headrace-lab live failover --kind kill --arms rr,rr_retries,lr,weights --json {out}/failover-kill.json"
)
JITTER: Final = "sudo headrace-lab live jitter --arms rr,v2,v3,weights --json {out}/jitter.json"

REFUSALS_AND_FAULTS: Final[tuple[Claim, ...]] = (
    Claim(
        "long prompts leaked to a cell that must refuse them",
        "0.43 %",
        "32.11 % / 28.71 %",
        "capability",
        "leak.{arm}",
        "share",
        CAPABILITY,
        note="v3 has the error signal alone, as the published system; weights has capability classes as well",
        short=True,
    ),
    Claim(
        "long prompts answered",
        "99.57 %",
        "67.89 % / 71.29 %",
        "capability",
        "long_success.{arm}",
        "share",
        CAPABILITY,
    ),
    Claim(
        "leak, all prompts long",
        "0.43 %",
        "32.11 % / 28.71 %",
        "capability",
        "leak.{arm}",
        "share",
        "headrace-lab live capability --variant all_long --json {out}/capability-all-long.json",
        variant="all_long",
    ),
    Claim(
        "reroute P99 after SIGKILL of an engine",
        "1,247 ms",
        "4,226 ms / over 1.6x theirs",
        "failover",
        "reroute_p99_ms.{arm}",
        "ms",
        KILL,
        kind="kill",
        note="ours is the excess over the same quantile without a fault; clients try again after 250 ms",
        short=True,
    ),
    Claim(
        "success of requests sent after the kill",
        "99.76 %",
        "94.12 % / -",
        "failover",
        "post_kill_success.{arm}",
        "share",
        KILL,
        kind="kill",
        short=True,
    ),
    Claim(
        "detection of the kill (P99)",
        "500 ms (one heartbeat)",
        "3 x 1 s health checks",
        "failover",
        "detect_ms_p99.{arm}",
        "ms",
        KILL,
        kind="kill",
        short=True,
    ),
    Claim(
        "reroute P99 after a hang",
        "-",
        "-",
        "failover",
        "reroute_p99_ms.{arm}",
        "ms",
        "headrace-lab live failover --kind hang --json {out}/failover-hang.json",
        kind="hang",
    ),
    Claim(
        "reroute P99 after a host is lost",
        "-",
        "-",
        "failover",
        "reroute_p99_ms.{arm}",
        "ms",
        "headrace-lab live failover --kind node --json {out}/failover-node.json",
        kind="node",
    ),
)
SPEEDS_AND_SIGNALS: Final[tuple[Claim, ...]] = (
    Claim(
        "weight of the kind of cell with most over that with least",
        "134 : 134 : 1",
        "-",
        "heterogeneous",
        "weight_ratio.{arm}",
        "ratio",
        "headrace-lab live heterogeneous --json {out}/heterogeneous.json",
        note="their third kind was limited in context length, ours is half as fast and refuses nothing",
    ),
    Claim(
        "P50 on an unequal fleet",
        "5,970 ms at 12 RPS",
        "6,730 ms / -",
        "heterogeneous",
        "ttft_p50_ms.{arm}",
        "ms",
        "headrace-lab live heterogeneous --rps 12 --json {out}/heterogeneous.json",
        note="ours is TTFT; theirs is not said to be TTFT or the whole answer",
    ),
    Claim(
        "P99 on an unequal fleet",
        "7,042 ms at 12 RPS",
        "7,791 ms / -",
        "heterogeneous",
        "ttft_p99_ms.{arm}",
        "ms",
        "headrace-lab live heterogeneous --rps 12 --json {out}/heterogeneous.json",
        note="ours is TTFT; theirs is not said to be TTFT or the whole answer",
    ),
    Claim(
        "cold start, 10 RPS for 60 s: P95",
        "lowest at every percentile",
        "-",
        "calibration",
        "ttft_p95_ms.{arm}",
        "ms",
        "headrace-lab live calibration --json {out}/calibration.json",
    ),
    Claim(
        "above saturation: P99",
        "all within 0.3 % at 20 RPS",
        "-",
        "saturation",
        "ttft_p99_ms.{arm}",
        "ms",
        "headrace-lab live saturation --json {out}/saturation.json",
    ),
    Claim(
        "P95 TTFT gain of the two network signals, 20 ms of jitter",
        "12-28 % over five conditions",
        "-",
        "jitter",
        "network_gain.jitter_20ms",
        "share",
        JITTER,
        short=True,
    ),
    Claim(
        "the same, unequal steady paths",
        "12-28 % over five conditions",
        "-",
        "jitter",
        "network_gain.spread",
        "share",
        JITTER,
    ),
    Claim(
        "P95 of all ten signals against round-robin, 20 ms of jitter",
        "42 %",
        "-",
        "jitter",
        "network_gain_vs_rr.jitter_20ms",
        "share",
        JITTER,
    ),
    Claim(
        "a burst is answered by weights (P95)",
        "within a second",
        "-",
        "burst",
        "reaction_p95_ms.{arm}",
        "ms",
        "headrace-lab live burst --json {out}/burst.json",
    ),
    Claim(
        "GPU telemetry warns before the SLO breaks (mean)",
        "11.2 s (mean of 9)",
        "-",
        "lead-time",
        "lead_s_mean",
        "s",
        "headrace-lab sim lead-time --json {out}/lead-time.json",
        note="their stress was matrix products on the same GPU; ours is in the scenario file",
        short=True,
    ),
    Claim(
        "SLO breaches under that stress, with routing on",
        "0",
        "-",
        "lead-time",
        "slo_breaches",
        "number",
        "headrace-lab sim lead-time --json {out}/lead-time.json",
    ),
    Claim(
        "success while GPU exporters are down",
        "99.90 %",
        "-",
        "dcgm-loss",
        "success",
        "share",
        "headrace-lab live dcgm-loss --json {out}/dcgm-loss.json",
        short=True,
    ),
    Claim(
        "fallback in force after (mean)",
        "824 ms",
        "-",
        "dcgm-loss",
        "fallback_ms_mean",
        "ms",
        "headrace-lab live dcgm-loss --json {out}/dcgm-loss.json",
    ),
    Claim(
        "fallback in force after (most)",
        "-",
        "-",
        "dcgm-loss",
        "fallback_ms_max",
        "ms",
        "headrace-lab live dcgm-loss --json {out}/dcgm-loss.json",
    ),
    Claim(
        "projection and xDS build, 9 replicas",
        "0.2 ms",
        "-",
        "bench/route_update",
        "median_us.9",
        "us",
        "make bench NAME=route_update JSON={out}/route_update.json",
        modes=("bench",),
        short=True,
    ),
)


@dataclass(frozen=True, slots=True)
class FleetClaim:
    """A published figure of the matrix, and the fleet whose matrix ours is from."""

    what: str
    theirs: str
    plain: str
    fleet: str
    note: str = ""

    @property
    def command(self) -> str:
        return f"headrace-lab matrix --fleet {self.fleet} --out {{out}}"


SUSTAINABLE: Final[tuple[FleetClaim, ...]] = tuple(
    FleetClaim(
        f"sustainable RPS against round-robin, middle SLO tier, {fleet}",
        "1.56-1.75x in eight classes",
        "1x / between",
        fleet,
        "their matrix fleet was nine equal cards" if fleet == "homogeneous" else "",
    )
    for fleet in ("homogeneous", "perturbed", "heterogeneous")
)
BELOW: Final = FleetClaim(
    "P99 below saturation against round-robin, equal cells, baseline_mixed",
    "-27.9 %",
    "1 / as theirs",
    "homogeneous",
)
