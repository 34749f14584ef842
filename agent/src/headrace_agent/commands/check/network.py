"""What the paths, and the right to measure them, say. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace_agent.collectors.network.rights import IcmpRight
from headrace_agent.collectors.readings import PathMethod, PathReading
from headrace_agent.commands.check.findings import Finding, error, ok, warn
from headrace_agent.settings import NetworkSettings

ABOUT = "network"


def judge_right(settings: NetworkSettings, right: IcmpRight) -> Finding:
    """Whether paths can be measured as the settings want it."""
    if settings.method == "off":
        return warn(ABOUT, "paths are not measured: network.method is off", "set it to auto")
    if settings.method == "tcp":
        return ok(ABOUT, "paths are measured by TCP connects, as network.method says")
    if right.way:
        return ok(ABOUT, f"ICMP is allowed ({right.way} sockets)")
    if settings.method == "icmp":
        return error(ABOUT, f"network.method is icmp, and ICMP is not allowed: {right.why}", right.remedy)
    return warn(ABOUT, f"ICMP is not allowed, TCP connects stand in: {right.why}", right.remedy)


def judge_paths(paths: Sequence[PathReading]) -> Iterator[Finding]:
    """One finding a gateway."""
    if not paths:
        yield ok(
            ABOUT, "no path was measured: controllers name the gateways to the agent; --gateway tries one"
        )
    for path in paths:
        about = f"path to {path.gateway}"
        if path.rtt_ms is None:
            why = path.detail or "no echo came back"
            yield error(
                about,
                f"it cannot be measured: {why}",
                "check the address, the port and the firewalls between",
            )
            continue
        way = "ICMP" if path.method is PathMethod.ICMP else "TCP connects"
        jitter = "" if path.jitter_ms is None else f", jitter {path.jitter_ms:.3g} ms"
        what = f"{path.rtt_ms:.3g} ms by {way}{jitter}, {100 * (path.loss or 0):.0f} % lost"
        lossy = path.loss is not None and path.loss > 0
        yield warn(about, what, "look for congestion or errors on the way") if lossy else ok(about, what)
