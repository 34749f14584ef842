"""What healthy GPUs show in simulations."""

from __future__ import annotations

from headrace_lab.scenarios import packaged
from headrace_lab.scenarios.settings import HealthNoise
from headrace_lab.sim.noise import Noise
from headrace_lab.sim.world import Setup, World


def world() -> World:
    catalogue = packaged()
    return World(Setup(catalogue.fleet("homogeneous"), catalogue.network("none")), catalogue.arm("rr"), 1)


def test_counters_rise_by_whole_counts_at_the_rate_asked_for() -> None:
    noisy = world()
    Noise(noisy, HealthNoise(every_s=2.0, cooling=0.0, replays_per_min=6.0, ecc_per_min=3.0), 1)
    noisy.run([], 600.0)
    now = noisy.clock.now()
    figures = [cell.gpu.figures(now) for cell in noisy.cells.values()]
    replays, errors = sum(f.pcie_replays for f in figures), sum(f.ecc_correctable for f in figures)
    # Nine cells in ten minutes: 540 and 270 are to be expected.
    assert 450 < replays < 630
    assert 210 < errors < 330


def test_cooling_wanders_and_no_engine_is_slowed() -> None:
    noisy, calm = world(), world()
    Noise(noisy, HealthNoise(cooling=0.04, replays_per_min=0, ecc_per_min=0), 1)
    for each in (noisy, calm):
        each.run([], 120.0)
    now = noisy.clock.now()
    warm = [cell.gpu.figures(now).temperature_c for cell in noisy.cells.values()]
    still = [cell.gpu.figures(now).temperature_c for cell in calm.cells.values()]
    assert len(set(still)) == 1
    assert len(set(warm)) == len(warm)
    assert max(abs(t - still[0]) for t in warm) < 3.0
    assert all(cell.engine.slowdown == 1.0 for cell in noisy.cells.values())
