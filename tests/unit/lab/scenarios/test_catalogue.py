"""The scenario file: what it must hold, and how a bad one is refused."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_lab.scenarios import Network, PathPlan, packaged
from headrace_lab.scenarios.catalogue import FILE, Catalogue, read
from headrace_shared.config import ConfigError

TEXT = files("headrace_lab.scenarios").joinpath(FILE).read_text(encoding="utf-8")


def changed(old: str, new: str) -> str:
    assert TEXT.count(old) >= 1, f"the scenario file no longer has {old!r}"
    return TEXT.replace(old, new, 1)


def test_every_scenario_of_the_lab_is_there() -> None:
    assert set(packaged().scenarios) == {
        *("homogeneous", "heterogeneous", "perturbed", "calibration", "saturation", "capability"),
        *("failover", "burst", "jitter", "dcgm-loss", "lead-time", "controller-loss", "rolling-upgrade"),
    }
    assert set(packaged().scenario("failover").kinds) == {"kill", "hang", "node", "site", "loading"}
    assert len(packaged().scenario("jitter").networks) == 5
    assert list(packaged().tiers.values()) == [1.5, 2.5, 5.0]
    assert len(packaged().matrix_loads) == 8


@pytest.mark.parametrize("name", ["homogeneous", "heterogeneous", "perturbed", "edge", "capability"])
def test_fleets_are_three_sites_of_three(name: str) -> None:
    plans = packaged().fleet(name).plans
    assert len({plan.id for plan in plans}) == 9
    assert [plan.number for plan in plans] == list(range(9))
    assert {plan.site for plan in plans} == {"east", "central", "west"}


def test_single_cells_differ_as_said() -> None:
    perturbed = {plan.id: plan for plan in packaged().fleet("perturbed").plans}
    assert perturbed["central-2"].speed == 0.6
    assert [p.id for p in perturbed.values() if p.pcie_contention > 0] == ["west-1"]
    limits = [plan.max_model_len for plan in packaged().fleet("capability").plans]
    assert sorted(limits)[:2] == [1024, 32768]
    heterogeneous = packaged().fleet("heterogeneous").plans
    assert len({plan.max_model_len for plan in heterogeneous}) == 1
    assert {(plan.gpu, plan.speed) for plan in heterogeneous} == {("h200", 1.0), ("h100", 1.0), ("h100", 0.5)}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (changed("tight: 1.5", "tight: 0.5"), "tiers"),
        (changed("speed: 0.6", "speed: -1"), "fleets.perturbed.cells.central-2.speed"),
        (changed("speed: 0.6", "sped: 0.6"), "fleets.perturbed.cells.central-2.sped"),
        (changed("central-2: {speed: 0.6}", "north-9: {speed: 0.6}"), "north-9"),
        (changed("refuse_share: 0.3", "refuse_share: 3"), "refuse_share"),
        (changed("every_s: 20, count: 20", "every_s: 2, count: 20"), "scenarios.failover.faults"),
        (changed("kinds: [kill,", "kinds: [explode,"), "explode"),
        (changed("load: mixed_30_long", "load: mixed"), "scenarios.capability.load"),
        (changed("networks: [clean,", "networks: [dirty,"), "dirty"),
        (
            changed("rtt_ms: 60, jitter_ms: 20", "rtt_ms: 20, jitter_ms: 20"),
            "networks.jitter_20ms.paths.west",
        ),
        (changed("target: engine", "target: moon"), "faults.kill.target"),
        (changed("version: 1", "version: 2"), "version"),
        (changed("prompt: {mean: 512", "prompt: {mean: .nan"), "baseline_mixed"),
        (changed("at_s: 40, site: west", "at_s: 90, site: west"), "networks.step"),
        (changed("east: {rtt_ms: 2,", "moon: {rtt_ms: 2,"), "moon"),
    ],
)
def test_a_bad_file_names_the_field(text: str, field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    assert field in str(refused.value)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(KeyError, match="perturbed"):
        packaged().fleet("perturb")
    with pytest.raises(KeyError, match="mooncake"):
        packaged().load("moon")


def test_a_step_change_holds_from_its_moment_on() -> None:
    network = packaged().network("step")
    assert network.path("west", 39.9).rtt_ms == 20
    assert network.path("west", 40.0).rtt_ms == 120
    assert network.path("west", 1000.0).rtt_ms == 20
    assert network.path("east", 50.0).rtt_ms == 4
    assert network.path("nowhere", 50.0) == PathPlan()
    assert packaged().network("outage").path("west", 50.0).down


@given(rtt=st.floats(0, 1000), share=st.floats(0, 0.9), loss=st.floats(0, 0.9))
@settings(max_examples=60, deadline=None)
def test_round_trips_come_out_of_the_emulator_as_described(rtt: float, share: float, loss: float) -> None:
    """The file speaks of round trips, the emulator of directions; both must mean the same path."""
    plan = PathPlan(rtt_ms=rtt, jitter_ms=share * rtt / 2 * 14 / 15, loss=loss)
    assert plan.one_way.expected_rtt_ms == pytest.approx(plan.rtt_ms)
    assert plan.one_way.expected_jitter_ms == pytest.approx(plan.jitter_ms)
    assert plan.one_way.expected_loss == pytest.approx(plan.loss, abs=1e-9)


def test_faults_whose_window_does_not_end_in_time_are_left_out() -> None:
    faults = packaged().scenario("failover").faults
    assert faults is not None
    assert len(faults.times(430)) == 20
    assert faults.times(30) == [20.0]
    assert faults.times(29) == []


def test_stress_holds_until_the_next_point() -> None:
    stress = packaged().stress("pcie")
    assert stress.at(0).pcie_contention == 0
    assert stress.at(65).pcie_contention == 0.3
    assert stress.at(85).pcie_contention == 0.7
    assert stress.at(1000).pcie_contention == 0
    assert packaged().stress("thermal").at(100).cooling == 0.25


def test_the_catalogue_cannot_be_changed() -> None:
    """It is read once and shared; a scenario that changed it would change the next one."""
    catalogue: Catalogue = packaged()
    with pytest.raises(ValueError, match="frozen"):
        catalogue.scenario("burst").rps = 3
    assert Network().path("x", 0) == PathPlan()
