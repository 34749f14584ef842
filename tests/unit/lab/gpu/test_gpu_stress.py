"""Heat, clocks, contention and errors of the GPU model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.gpu.model import LEAST_CLOCK, SW_THERMAL, Gpu, GpuLoad, GpuParameters, GpuStress

BUSY = GpuLoad(busy=1.0, tensor=0.5, bandwidth=0.9, kv_fill=0.5, present=True)
HOT = GpuParameters(limit_w=600.0, full_load_c=88.0, throttle_c=90.0)


def test_without_stress_a_gpu_keeps_its_clock() -> None:
    gpu = Gpu(HOT, 0.0)
    gpu.follow(GpuLoad(1.0, 1.0, 1.0, 1.0, True), 0.0)
    figures = gpu.figures(1000.0)
    assert (figures.clock_share, figures.clock_event_reasons) == (1.0, 0)
    assert figures.thermal_margin_c == pytest.approx(2.0)
    assert gpu.slowdown(1000.0) == 1.0


def test_heat_lowers_clocks_after_a_while_and_they_come_back() -> None:
    gpu = Gpu(HOT, 0.0)
    gpu.follow(BUSY, 0.0)
    gpu.figures(200.0)
    gpu.suffer(GpuStress(heat_w=600.0), 200.0)
    assert gpu.slowdown(200.5) == 1.0, "mass warms slowly"
    hot = gpu.figures(400.0)
    assert hot.clock_share < 0.97
    assert hot.clock_event_reasons == SW_THERMAL
    assert hot.thermal_margin_c < 0
    assert gpu.slowdown(400.0) == pytest.approx(1 / hot.clock_share)
    gpu.suffer(GpuStress(), 400.0)
    assert gpu.figures(600.0).clock_share == 1.0


def test_clocks_find_their_balance_without_swinging() -> None:
    gpu = Gpu(HOT, 0.0)
    gpu.follow(BUSY, 0.0)
    gpu.suffer(GpuStress(heat_w=600.0), 0.0)
    late = [gpu.figures(300.0 + t).clock_share for t in range(0, 60, 5)]
    assert max(late) - min(late) < 0.002


def test_the_time_constant_is_what_is_asked_for() -> None:
    def crossing(constant: float) -> float:
        gpu = Gpu(GpuParameters(full_load_c=88, throttle_c=90, thermal_time_constant_s=constant), 0.0)
        gpu.follow(BUSY, 0.0)
        gpu.figures(1000.0)
        gpu.suffer(GpuStress(heat_w=700.0), 1000.0)
        return next(t for t in range(2000) if gpu.figures(1000.0 + t / 4).clock_share < 1.0)

    assert crossing(40.0) == pytest.approx(2 * crossing(20.0), rel=0.1)


def test_lost_cooling_heats_as_fast_as_before_and_further() -> None:
    def after(seconds: float, cooling: float) -> float:
        gpu = Gpu(HOT, 0.0)
        gpu.follow(BUSY, 0.0)
        gpu.figures(1000.0)
        gpu.suffer(GpuStress(cooling=cooling), 1000.0)
        return gpu.figures(1000.0 + seconds).temperature_c

    usual = after(0.0, 1.0)
    assert after(1000.0, 0.5) > HOT.throttle_c > usual, "half the cooling is too little at this load"
    # The heat capacity stays: losing twice as much of the cooling warms twice as fast at first.
    half, most = after(0.5, 0.75) - usual, after(0.5, 0.5) - usual
    assert most == pytest.approx(2 * half, rel=0.02)
    gpu = Gpu(HOT, 0.0)
    gpu.follow(BUSY, 0.0)
    gpu.suffer(GpuStress(cooling=0.25), 0.0)
    assert gpu.slowdown(600.0) > 1.3


def test_replays_can_come_without_contention() -> None:
    gpu = Gpu(GpuParameters(), 0.0)
    gpu.suffer(GpuStress(replays_per_min=2.0), 0.0)
    assert (gpu.figures(60.0).pcie_replays, gpu.slowdown(60.0, 0.15)) == (2, 1.0)


def test_contention_slows_by_the_links_part_and_replays_packets() -> None:
    gpu = Gpu(GpuParameters(), 0.0)
    gpu.suffer(GpuStress(pcie_contention=0.5), 0.0)
    assert gpu.slowdown(0.0, pcie_share=0.15) == pytest.approx(1.15)
    assert gpu.figures(60.0).pcie_replays == 0
    gpu.suffer(GpuStress(pcie_contention=0.75), 60.0)
    assert gpu.slowdown(60.0, pcie_share=0.15) == pytest.approx(1.45)
    assert gpu.figures(120.0).pcie_replays == 30
    gpu.suffer(GpuStress(), 120.0)
    assert gpu.figures(600.0).pcie_replays == 30


def test_memory_errors_and_xids_are_told() -> None:
    gpu = Gpu(GpuParameters(), 0.0)
    gpu.suffer(GpuStress(ecc_per_min=6.0), 0.0)
    gpu.last_xid = 79
    figures = gpu.figures(60.0)
    assert (figures.ecc_correctable, figures.last_xid) == (6, 79)


@given(
    st.lists(
        st.tuples(st.floats(0.01, 50), st.floats(0, 1), st.floats(0, 2000), st.floats(0, 0.95)),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_comes_figures_stay_possible(changes: list[tuple[float, float, float, float]]) -> None:
    p, now = HOT, 0.0
    gpu, energy = Gpu(p, 0.0), -1
    for seconds, load, heat, contention in changes:
        gpu.follow(GpuLoad(load, load, load, load, True), now)
        gpu.suffer(GpuStress(heat, contention), now)
        now += seconds
        figures = gpu.figures(now)
        assert LEAST_CLOCK <= figures.clock_share <= 1.0
        assert p.ambient_c <= figures.temperature_c < 200
        assert p.idle_w <= figures.power_w <= 2 * p.limit_w
        assert figures.energy_mj > energy
        assert gpu.slowdown(now, 0.1) >= 1.0
        energy = figures.energy_mj
