"""The conditions under which the demonstration counts as working."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace_lab.demo.result import Check
from headrace_lab.stack.program import Spec
from headrace_lab.stack.stack import StopReport

DETECT_MS = 250.0
POST_KILL_SUCCESS = 0.995
GAP_POINTS = 5.0
SIGTERM_S = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the checks look at. None = could not be measured, which fails the check."""

    requests: int
    good: int
    not_sent: int
    unexplained: int
    cut_at_kill: int
    detect_ms: float | None
    post_kill_success: float | None
    gap_points: float | None
    nacks: float | None


def traffic(outcome: Outcome, *, baseline: bool, picker: bool = False) -> list[Check]:
    """Checks of the requests and the kill; a baseline's are shown, not enforced. A `picker` places requests
    by what they cost, so that shares follow weights only where it leaves them."""
    detect, after, gap = outcome.detect_ms, outcome.post_kill_success, outcome.gap_points
    ours = not baseline
    return [
        Check("load was sent", outcome.requests > 0 and outcome.good > 0, f"{outcome.good} good", "some"),
        Check("requests held back by the driver", outcome.not_sent == 0, str(outcome.not_sent), "0"),
        Check("unexplained failures", outcome.unexplained == 0, str(outcome.unexplained), "0", ours),
        Check(
            "killed endpoint gone from Envoy",
            detect is not None and detect <= DETECT_MS,
            "never" if detect is None else f"{detect:.0f} ms",
            f"at most {DETECT_MS:.0f} ms",
            ours,
        ),
        Check(
            "success after the kill",
            after is not None and after >= POST_KILL_SUCCESS,
            "no requests" if after is None else f"{after:.2%}",
            f"at least {POST_KILL_SUCCESS:.1%}",
            ours,
        ),
        Check(
            "shares follow weights",
            gap is not None and gap <= GAP_POINTS,
            "not measured" if gap is None else f"{gap:.1f} points apart",
            f"within {GAP_POINTS:.0f} points",
            ours and not picker,
        ),
        Check("lost in flight on the killed engine", True, str(outcome.cut_at_kill), "any", enforced=False),
    ]


def nacks(count: float | None) -> Check:
    """Envoy must have accepted every resource that it was sent."""
    found = "no such metric at the controller" if count is None else f"{count:.0f}"
    return Check("configuration refused by Envoy (NACKs)", count == 0, found, "0")


def ends(report: StopReport, specs: Iterable[Spec]) -> list[Check]:
    """Checks of how the programs ended."""
    ours = {spec.name for spec in specs if spec.ours}
    exits = [e for e in report.exits if e.name in ours and not e.planned]
    bad = [f"{e.name} ({'SIGKILL' if e.killed else e.code})" for e in exits if e.killed or e.code != 0]
    slowest = report.slowest(ours)
    left = [*report.processes, *(f"port {port}" for port in report.ports)]
    return [
        Check("programs end on SIGTERM", slowest <= SIGTERM_S, f"{slowest:.2f} s", f"within {SIGTERM_S:g} s"),
        Check("programs exit 0", not bad, ", ".join(bad) or "all", "all"),
        Check("nothing left running", not left, ", ".join(left) or "nothing", "nothing"),
    ]


def end_figures(report: StopReport, specs: Iterable[Spec]) -> dict[str, float | None]:
    """The same ends as figures: seconds of the slowest of this project's programs, and leftovers."""
    return {
        "sigterm_s_max": report.slowest(spec.name for spec in specs if spec.ours),
        "leftover_processes": len(report.processes),
        "leftover_ports": len(report.ports),
    }
