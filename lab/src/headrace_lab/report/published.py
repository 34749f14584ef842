"""The published figures of a system of this architecture, and where ours are found.

What they measured and how is in the docs' page on the report; where their set-up differs from ours a
note says so.
"""

from __future__ import annotations

from typing import Final

from headrace_lab.report.claims import Claim, FleetClaim

CITATION: Final = (
    "Published reference figures for this architecture: one closed system on real GPUs, 6 and then 9 of them "
    "at 3 sites. Ours are from simulated engines on one machine; compare ratios, not absolute times."
)
CAPABILITY: Final = "headrace-lab live capability --arms rr,lr,v3,weights --json {out}/capability.json"
KILL: Final = (
    "headrace-lab live failover --kind kill --arms rr,rr_retries,lr,weights --json {out}/failover-kill.json"
)
UNEQUAL: Final = "headrace-lab live heterogeneous --rps 12 --json {out}/heterogeneous-12rps.json"
EQUAL: Final = "headrace-lab live homogeneous --rps 12 --json {out}/homogeneous-12rps.json"
JITTER: Final = "sudo headrace-lab live jitter --json {out}/jitter.json"
LEAD: Final = "headrace-lab sim lead-time --json {out}/lead-time.json"
DCGM: Final = "headrace-lab live dcgm-loss --json {out}/dcgm-loss.json"
NOT_SAID: Final = "ours is TTFT; theirs is not said to be TTFT or the whole answer"
THEIR_GAIN: Final = "12-28 % over five conditions"
GAIN_OF: Final = "v3 and weights against the eight signals of v2; the oracle's is the bound"
CONDITIONS: Final = {
    "clean": "paths all alike (the control)",
    "spread": "unequal steady paths",
    "jitter_20ms": "20 ms of jitter",
    "loss_2pct": "2 % lost on one path",
    "step": "a path that changes",
}

CAPABILITIES: Final[tuple[Claim, ...]] = (
    Claim(
        "long prompts leaked to a cell that must refuse them",
        "capability",
        "leak.{arm}",
        "share",
        CAPABILITY,
        theirs="0.43 %",
        plain="32.11 % / 28.71 %",
        note="v3 has the error signal alone, as the published system; weights has capability classes as well",
        short=True,
    ),
    Claim(
        "long prompts answered",
        "capability",
        "long_success.{arm}",
        "share",
        CAPABILITY,
        theirs="99.57 %",
        plain="67.89 % / 71.29 %",
    ),
    Claim(
        "leak, all prompts long",
        "capability",
        "leak.{arm}",
        "share",
        "headrace-lab live capability --variant all_long --json {out}/capability-all-long.json",
        theirs="0.43 %",
        plain="32.11 % / 28.71 %",
        variant="all_long",
    ),
)
KILLS: Final[tuple[Claim, ...]] = (
    Claim(
        "reroute P99 after SIGKILL of an engine",
        "failover",
        "reroute_p99_ms.{arm}",
        "ms",
        KILL,
        theirs="1,247 ms",
        plain="4,226 ms / over 1.6x theirs",
        kind="kill",
        note="ours is the excess over the same quantile without a fault; clients try again after 250 ms",
        short=True,
    ),
    Claim(
        "round-robin's reroute P99 over the arm's",
        "failover",
        "reroute_p99_ms_ratio.rr_{arm}",
        "times",
        KILL,
        theirs="3.4x",
        kind="kill",
        note="absent where an arm's P99 is no higher than without a fault",
    ),
    Claim(
        "P99 to the first token after SIGKILL, usual time included",
        "failover",
        "after_fault_p99_ms.{arm}",
        "ms",
        KILL,
        theirs="1,247 ms",
        plain="4,226 ms / over 1.6x theirs",
        kind="kill",
    ),
    Claim(
        "success of requests sent after the kill",
        "failover",
        "post_kill_success.{arm}",
        "share",
        KILL,
        theirs="99.76 %",
        plain="94.12 % / -",
        kind="kill",
        short=True,
    ),
    Claim(
        "the killed engine is out of Envoy's list (P99)",
        "failover",
        "detect_ms_p99.{arm}",
        "ms",
        KILL,
        theirs="500 ms (one heartbeat)",
        kind="kill",
        note="a plain Envoy never takes an endpoint out; it marks it, below",
        short=True,
    ),
    Claim(
        "Envoy itself has marked the killed engine (P50)",
        "failover",
        "marked_ms_p50.{arm}",
        "ms",
        KILL,
        plain="3 x 1 s health checks",
        kind="kill",
    ),
)
LATENCIES: Final[tuple[Claim, ...]] = (
    Claim(
        "P99 on equal cells below saturation (12 RPS there)",
        "homogeneous",
        "ttft_p99_ms.{arm}",
        "ms",
        EQUAL,
        theirs="about 7,140 ms (-27.9 %)",
        plain="9,894 ms / as theirs",
        rps=12.0,
        note=NOT_SAID,
    ),
    Claim(
        "mean weight of the kind of cell with most over that with least",
        "heterogeneous",
        "weight_ratio.{arm}",
        "ratio",
        "headrace-lab live heterogeneous --json {out}/heterogeneous.json",
        theirs="134 : 134 : 1",
        note="their third kind was limited in context length, ours is half as fast and refuses nothing",
    ),
    Claim(
        "P50 on an unequal fleet (12 RPS there)",
        "heterogeneous",
        "ttft_p50_ms.{arm}",
        "ms",
        UNEQUAL,
        theirs="5,970 ms",
        plain="6,730 ms / -",
        rps=12.0,
        note=NOT_SAID,
    ),
    Claim(
        "P99 on an unequal fleet (12 RPS there)",
        "heterogeneous",
        "ttft_p99_ms.{arm}",
        "ms",
        UNEQUAL,
        theirs="7,042 ms",
        plain="7,791 ms / -",
        rps=12.0,
        note=NOT_SAID,
    ),
    *(
        Claim(
            f"cold start, 10 RPS for 60 s: P{quantile} TTFT",
            "calibration",
            f"ttft_p{quantile}_ms.{{arm}}",
            "ms",
            "headrace-lab live calibration --json {out}/calibration.json",
            theirs="lowest at every percentile",
        )
        for quantile in (50, 95, 99)
    ),
    Claim(
        "above saturation: P99 TTFT of what was answered",
        "saturation",
        "ttft_p99_ms.{arm}",
        "ms",
        "headrace-lab live saturation --json {out}/saturation.json",
        theirs="all within 0.3 % at 20 RPS",
        note="all arms should meet there",
    ),
)
NETWORKS: Final[tuple[Claim, ...]] = (
    *(
        Claim(
            f"P95 TTFT gain of the network signals, {words}",
            "jitter",
            "",
            "share",
            JITTER,
            theirs=THEIR_GAIN,
            columns={
                "v3": f"network_gain.{name}",
                "weights": f"network_gain_weights.{name}",
                "oracle": f"network_gain_bound.{name}",
            },
            note="against the eight signals of v2; the oracle's is the bound"
            if name == "jitter_20ms"
            else "",
            short=name == "jitter_20ms",
        )
        for name, words in CONDITIONS.items()
    ),
    Claim(
        "P95 TTFT of all ten signals below round-robin's, 20 ms of jitter",
        "jitter",
        "",
        "share",
        JITTER,
        theirs="42 %",
        columns={"v3": "network_gain_vs_rr.jitter_20ms"},
    ),
)
WARNINGS: Final[tuple[Claim, ...]] = (
    Claim(
        "weights have moved after a burst (P95)",
        "burst",
        "reaction_p95_ms.{arm}",
        "ms",
        "headrace-lab live burst --json {out}/burst.json",
        theirs="within a second",
        note="their first change after it; reaction_usual_p95_ms is the same from moments without one",
    ),
    Claim(
        "GPU telemetry warns before the SLO breaks (mean)",
        "lead-time",
        "lead_s_mean",
        "s",
        LEAD,
        theirs="11.2 s (mean of 9)",
        note="their stress was matrix products on the same GPU; ours is in the scenario file",
        short=True,
    ),
    Claim(
        "SLO breaches under that stress, with routing on",
        "lead-time",
        "slo_breaches",
        "number",
        LEAD,
        theirs="0",
    ),
    Claim(
        "success while GPU exporters are down", "dcgm-loss", "success", "share", DCGM, "99.90 %", short=True
    ),
    Claim("fallback in force after (mean)", "dcgm-loss", "fallback_ms_mean", "ms", DCGM, "824 ms"),
    Claim(
        "projection and xDS build, 9 replicas",
        "bench/route_update",
        "median_us.9",
        "us",
        "make bench NAME=route_update JSON={out}/route_update.json",
        theirs="0.2 ms",
        modes=("bench",),
        short=True,
    ),
)
SUSTAINABLE: Final[tuple[FleetClaim, ...]] = tuple(
    FleetClaim(
        f"sustainable RPS against round-robin, middle SLO tier, {fleet}",
        fleet,
        "1.56-1.75x in eight classes",
        "1x / between",
        "their matrix fleet was nine equal cards" if fleet == "homogeneous" else "",
    )
    for fleet in ("homogeneous", "perturbed", "heterogeneous")
)
BELOW: Final = FleetClaim(
    "P99 TTFT below saturation against round-robin, equal cells, baseline_mixed",
    "homogeneous",
    "-27.9 %",
    "1 / as theirs",
)
