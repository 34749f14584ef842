"""The GPU model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.gpu.model import Gpu, GpuLoad, GpuParameters

FULL = GpuLoad(busy=1.0, tensor=0.9, bandwidth=0.4, kv_fill=0.5, present=True)
share = st.floats(0, 1)


def test_an_idle_gpu_still_uses_energy() -> None:
    """The agent tells a live page from a stale one by this counter."""
    gpu = Gpu(GpuParameters(idle_w=70.0), now=100.0)
    first, second = gpu.figures(100.25), gpu.figures(100.5)
    assert second.energy_mj - first.energy_mj == pytest.approx(70.0 * 0.25 * 1000, abs=1)
    assert second.power_w == 70.0


def test_temperature_follows_with_a_lag() -> None:
    gpu = Gpu(GpuParameters(thermal_time_constant_s=20.0), now=0.0)
    cold = gpu.figures(0.0).temperature_c
    gpu.follow(FULL, 0.0)
    soon, later, steady = (gpu.figures(t).temperature_c for t in (1.0, 20.0, 500.0))
    assert cold < soon < later < steady <= 78.0
    assert soon - cold < 0.06 * (steady - cold)
    assert (later - cold) / (steady - cold) == pytest.approx(0.632, abs=0.01)


def test_figures_follow_the_load() -> None:
    gpu = Gpu(GpuParameters(), now=0.0)
    gpu.follow(FULL, 0.0)
    figures = gpu.figures(1.0)
    assert (figures.gpu_util, figures.mem_copy_util) == (100, 40)
    assert (figures.tensor_active, figures.dram_active, figures.gr_engine_active) == (0.9, 0.4, 1.0)
    assert figures.power_w > 400
    gpu.follow(GpuLoad(), 1.0)
    assert gpu.figures(1.0).tensor_active == 0.0


def test_memory_holds_weights_and_cache_while_an_engine_runs() -> None:
    parameters = GpuParameters()
    gpu = Gpu(parameters, now=0.0)
    assert gpu.figures(0.0).used_mib == 0
    gpu.follow(FULL, 0.0)
    assert gpu.figures(0.0).used_mib == parameters.weights_mib + parameters.kv_mib
    lazy = Gpu(GpuParameters(preallocates=False), now=0.0)
    lazy.follow(FULL, 0.0)
    assert lazy.figures(0.0).used_mib == parameters.weights_mib + parameters.kv_mib // 2


@given(st.lists(st.tuples(st.floats(0.001, 100), share, share, share, share, st.booleans()), max_size=20))
def test_figures_stay_in_their_ranges_and_energy_always_moves(
    changes: list[tuple[float, float, float, float, float, bool]],
) -> None:
    p = GpuParameters()
    gpu, now, energy = Gpu(p, now=0.0), 0.0, -1
    for seconds, busy, tensor, bandwidth, kv_fill, present in changes:
        gpu.follow(GpuLoad(busy, tensor, bandwidth, kv_fill, present), now)
        now += seconds
        figures = gpu.figures(now)
        assert figures.energy_mj > energy
        assert p.ambient_c < figures.temperature_c <= p.full_load_c
        assert p.idle_w <= figures.power_w <= p.limit_w
        assert figures.used_mib + figures.free_mib + p.reserved_mib == p.memory_mib
        assert figures.free_mib >= 0
        energy = figures.energy_mj


def test_parameters_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="memory_mib"):
        GpuParameters(kv_mib=80_000)
    with pytest.raises(ValueError, match="idle_w"):
        GpuParameters(idle_w=0)
