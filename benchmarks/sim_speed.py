"""How much faster than real time the simulator is: nine cells, 20 requests a second, arm by arm.

Time is the process's own on the CPU, so that other work on the machine does not count.
"""

from __future__ import annotations

import time

from benchmarks.result import json_path, report
from headrace_lab.load.classes import generate
from headrace_lab.scenarios import packaged
from headrace_lab.sim.world import Setup, World
from headrace_shared import log

SEED = 1
RPS = 20.0
SECONDS = 300.0
ARMS = ("rr", "lr", "v3", "weights", "oracle")
REPEATS = 3


def speed(arm: str, load: str) -> float:
    """Virtual seconds a second of CPU time, the best of some runs."""
    catalogue = packaged()
    setup = Setup(catalogue.fleet("heterogeneous"), catalogue.network("regional"))
    best = 0.0
    for _ in range(REPEATS):
        begun = time.process_time()
        arrivals = generate(
            catalogue.load(load), rps=RPS, seconds=SECONDS, seed=SEED, most_tokens=setup.fleet.max_model_len
        )
        world = World(setup, catalogue.arm(arm), SEED)
        jobs = world.run(arrivals, SECONDS)
        assert len(jobs) == len(arrivals)
        best = max(best, SECONDS / (time.process_time() - begun))
    return best


def main() -> None:
    """Run all arms."""
    path = json_path(__doc__ or "")
    log.configure(level="error")
    figures = {f"times_real_time.{arm}": speed(arm, "baseline_mixed") for arm in ARMS}
    figures["times_real_time_min"] = min(figures.values())
    report("sim_speed", SEED, figures, path)


if __name__ == "__main__":
    main()
