"""What a live run keeps of the programs' own metrics."""

from __future__ import annotations

from headrace_lab.demo.observe import TROUBLES, read_counter
from headrace_lab.live.session import Session

COUNTERS = ("headrace_xds_pushes_total", "headrace_xds_nacks_total", "headrace_transitions_total")


async def counters(session: Session) -> dict[str, float]:
    """Counters of the controller at the end; those it does not have are left out."""
    if session.arm.peer:
        return {}
    try:
        page = await session.observer.page(f"{session.layout.fleet.api_url}/metrics")
    except TROUBLES:
        return {}
    found = {name: read_counter(page, name) for name in COUNTERS}
    return {name: value for name, value in found.items() if value is not None}


async def metrics_pages(session: Session) -> dict[str, str]:
    """The metrics pages of the controller and of Envoy, by arm and program."""
    fleet = session.layout.fleet
    places = {
        "controller": f"{fleet.api_url}/metrics",
        "envoy": f"{fleet.gateway_admin_url}/stats/prometheus",
    }
    found = {}
    for program, url in places.items():
        try:
            found[f"{session.arm_name}.{program}"] = await session.observer.page(url)
        except TROUBLES:
            session.said(f"{program} gave no metrics page")
    return found
