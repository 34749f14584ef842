"""Figures that nobody published and this project was asked for: other faults, other losses, operations."""

from __future__ import annotations

from typing import Final

from headrace_lab.report.claims import Claim, FleetClaim

FAULTS: Final = {
    "hang": "a hang",
    "node": "a host is lost",
    "site": "a site is lost",
    "loading": "an engine that is killed and loads again",
}
ARMS: Final = {"site": "rr,weights", "loading": "rr,weights"}


def _fault(kind: str) -> str:
    arms = f" --arms {ARMS[kind]}" if kind in ARMS else ""
    return f"headrace-lab live failover --kind {kind}{arms} --json {{out}}/failover-{kind}.json"


def _of_fault(kind: str, words: str) -> tuple[Claim, ...]:
    return (
        Claim(
            f"reroute P99 after {words}", "failover", "reroute_p99_ms.{arm}", "ms", _fault(kind), kind=kind
        ),
        Claim(
            f"success at the first try of requests sent after {words}",
            "failover",
            "post_kill_success.{arm}",
            "share",
            _fault(kind),
            kind=kind,
        ),
        Claim(
            f"round-robin's reroute P99 over the arm's, {words}",
            "failover",
            "reroute_p99_ms_ratio.rr_{arm}",
            "times",
            _fault(kind),
            kind=kind,
        ),
    )


FURTHER: Final[tuple[Claim, ...]] = (
    *(claim for kind, words in FAULTS.items() for claim in _of_fault(kind, words)),
    Claim(
        "requests refused by a cell that refuses 30 % whatever their length",
        "capability",
        "refused.{arm}",
        "share",
        "headrace-lab live capability --variant refusing --arms rr,lr,v3,weights "
        "--json {out}/capability-refusing.json",
        variant="refusing",
    ),
    Claim(
        "fallback in force after an exporter's loss (most)",
        "dcgm-loss",
        "fallback_ms_max",
        "ms",
        "headrace-lab live dcgm-loss --json {out}/dcgm-loss.json",
    ),
    Claim(
        "false alarms among healthy cells",
        "lead-time",
        "false_alarms",
        "number",
        "headrace-lab sim lead-time --json {out}/lead-time.json",
    ),
    Claim(
        "success while the controller is dead",
        "controller-loss",
        "success_meanwhile.{arm}",
        "share",
        "headrace-lab live controller-loss --json {out}/controller-loss.json",
        modes=("live",),
    ),
    Claim(
        "success while every cell is upgraded in turn",
        "rolling-upgrade",
        "success_whole.{arm}",
        "share",
        "headrace-lab live rolling-upgrade --json {out}/rolling-upgrade.json",
        modes=("live",),
    ),
    Claim(
        "P95 TTFT, one cell of nine slow and one with PCIe contention",
        "perturbed",
        "ttft_p95_ms.{arm}",
        "ms",
        "headrace-lab live perturbed --json {out}/perturbed.json",
    ),
)
TRACES: Final[tuple[FleetClaim, ...]] = tuple(
    FleetClaim(
        f"sustainable RPS against round-robin, public traces, {fleet}",
        fleet,
        traces=True,
    )
    for fleet in ("homogeneous", "perturbed", "heterogeneous")
)
