"""By which way a path is measured: the preferred one, and another where that says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_agent.collectors.network.echo import Echo, Outcome, Prober
from headrace_agent.collectors.readings import PathMethod


async def probe(
    probers: Sequence[Prober], method: PathMethod, dead: bool, address: str, port: int, timeout_s: float
) -> Echo:
    """One echo to `address`, by `method` first and then by the other probers in their order.

    Another way is tried where the one before is not possible on this host, and where the path is
    `dead` by it: networks filter ICMP far more often than they fail. The answer is the first
    reply; without one the first loss, or the first reason why nothing could be sent.
    """
    said: Echo | None = None
    for prober in sorted(probers, key=lambda each: each.method is not method):
        echo = await prober.echo(address, port, timeout_s)
        if echo.outcome in (Outcome.REPLY, Outcome.DROPPED):
            return echo
        if said is None or (said.outcome is Outcome.UNABLE and echo.outcome is Outcome.LOST):
            said = echo
        if echo.outcome is Outcome.LOST and not dead:
            break
    if said is None:
        return Echo(Outcome.UNABLE, method, detail="paths are not measured here")
    return said
