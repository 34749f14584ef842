"""The scenario file with a small, quick fleet, for tests."""

from __future__ import annotations

from headrace_lab.scenarios import FaultTimes, FleetPlan, Network, PathPlan, packaged
from headrace_lab.scenarios.catalogue import Catalogue


def small_catalogue() -> Catalogue:
    """Three quick cells at two sites, two kills that come soon, and a path whose delay cannot be missed."""
    catalogue = packaged()
    fleet = FleetPlan(model="1b", max_model_len=8192, sites={"east": ("edge", "edge"), "west": ("edge",)})
    kill = catalogue.fault("kill").model_copy(update={"repair_s": 2.0, "loading_s": 0.2})
    times = FaultTimes(first_s=3, every_s=7, count=2, window_s=5, least=2)
    scenarios = dict(catalogue.scenarios)
    scenarios["failover"] = catalogue.scenario("failover").model_copy(
        update={"fleet": "small", "faults": times}
    )
    scenarios["jitter"] = catalogue.scenario("jitter").model_copy(
        update={"fleet": "small", "networks": ("far",), "warm_up_s": 0.0}
    )
    far = Network(paths={"east": PathPlan(rtt_ms=2), "west": PathPlan(rtt_ms=150)})
    return catalogue.model_copy(
        update={
            "fleets": {**catalogue.fleets, "small": fleet},
            "faults": {**catalogue.faults, "kill": kill},
            "networks": {**catalogue.networks, "far": far},
            "scenarios": scenarios,
        }
    )
