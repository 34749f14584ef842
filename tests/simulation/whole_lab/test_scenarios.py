"""Scenarios in simulation, from the scenario file to figures."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from headrace_lab.live.ask import Ask, Options, look_up
from headrace_lab.scenarios import packaged
from headrace_lab.scenarios.settings import Counting
from headrace_lab.sim.fleets import run_fleet
from headrace_lab.sim.lead import run_lead
from headrace_lab.sim.scenarios import (
    capability,
    exporters,
    failover,
    jitter,
    run_arms,
    run_faults,
    run_networks,
)
from headrace_lab.sim.simulate import simulate
from headrace_lab.sim.sustain import measure
from headrace_lab.sim.world import Setup
from tests.support.clock import FakeClock

SHORT = Counting(
    warm_up_s=5, counted_s=20, cool_down_s=2, least_samples=50, bisections=5, unloaded_samples=30
)


def ask(name: str, *arms: str, kind: str = "", **options: object) -> Ask:
    catalogue = packaged().model_copy(update={"counting": SHORT})
    return look_up(Options(name=name, kind=kind, arms=arms, **options), catalogue, "sim")  # type: ignore[arg-type]


def quiet(text: str) -> None:
    assert text


def test_a_run_that_cannot_keep_the_slo_ends_early_and_agrees_with_a_whole_one() -> None:
    catalogue = packaged()
    setup = Setup(catalogue.fleet("perturbed"), catalogue.network("regional"))
    load, arm = catalogue.load("baseline_mixed"), catalogue.arm("rr")
    whole = measure(setup, arm, load, SHORT, 16.0, seed=1)
    assert whole.exact
    assert whole.samples > 200
    cut = measure(setup, arm, load, SHORT, 16.0, seed=1, slo_s=0.8 * whole.p95_s)
    assert (cut.exact, cut.p95_s) == (False, 0.8 * whole.p95_s)
    kept = measure(setup, arm, load, SHORT, 16.0, seed=1, slo_s=1.01 * whole.p95_s)
    assert kept == whole


def test_a_fleet_scenario_ranks_its_arms() -> None:
    result = run_fleet(ask("perturbed", "rr", "oracle"), "middle", quiet)
    figures = result.figures
    assert figures["ratio_vs_rr.oracle"] is not None
    assert figures["ratio_vs_rr.oracle"] > 1.15
    assert figures["ratio_vs_oracle.rr"] == pytest.approx(1 / figures["ratio_vs_rr.oracle"])
    assert figures["slo_ms"] == pytest.approx(2.5 * (figures["unloaded_p95_ms"] or 0))
    assert {run.arm for run in result.runs} == {"rr", "oracle"}


def test_capability_leaks_under_round_robin_and_not_under_classes() -> None:
    given = ask("capability", "rr", "weights", seconds=40.0, rps=4.0)
    figures = capability(run_arms(given, quiet), given)
    assert (figures["leak.rr"] or 0) > 0.05
    assert figures["leak.weights"] == 0.0
    assert figures["long_success.weights"] == 1.0


def test_a_killed_engine_is_gone_within_the_event_and_nothing_sent_later_fails() -> None:
    given = ask("failover", "rr", "weights", kind="kill", seconds=75.0)
    runs = run_faults(given, quiet)
    figures = failover(runs, given)
    assert figures["faults.weights"] == 3
    assert figures["undetected.weights"] == 0
    assert 2000 <= (figures["marked_ms_p50.rr"] or 0) <= 3500, "three checks of a second each"
    assert (figures["detect_ms_p99.weights"] or 1e9) <= 150
    assert (figures["post_kill_success.rr"] or 1.0) < figures["post_kill_success.weights"] == 1.0
    assert all(record.ok for run in runs for record in run.seen.records), "clients try again"
    first = runs[1].seen.faults[0]
    later = [r.cell for r in runs[1].seen.records if first.at_s + 25 <= r.due_s < first.at_s + 45]
    share = sum(cell in first.cells for cell in later) / len(later)
    assert share > 0.06, "what its death cut off is not held against the engine that came back"


def test_who_is_never_answered_waits_as_long_as_its_client_does() -> None:
    """As live: nothing that is open at the end may count as answered at once."""
    catalogue = packaged()
    patient = catalogue.client.model_copy(update={"timeout_s": 10.0})
    catalogue = catalogue.model_copy(update={"client": patient, "counting": SHORT})
    given = look_up(Options("saturation", arms=("rr",), rps=120.0, seconds=12.0), catalogue, "sim")
    (run,) = run_arms(given, quiet)
    lost = [record for record in run.seen.records if not record.ok]
    assert lost
    assert all(record.e2e_ms >= 10_000 for record in lost)
    assert all(record.ttft_ms is None or record.ttft_ms <= 12_000 for record in run.seen.records)


@pytest.mark.parametrize("kind", ["hang", "node", "loading"])
def test_other_faults_are_noticed_too(kind: str) -> None:
    given = ask("failover", "weights", kind=kind, seconds=35.0)
    (run,) = run_faults(given, quiet)
    (fault,) = run.seen.faults
    assert fault.detect_ms is not None
    assert fault.detect_ms < 4000
    assert fault.repaired_s is not None
    back = [record.cell for record in run.seen.records if record.due_s > fault.repaired_s + 3]
    assert set(back) & set(fault.cells) or given.seconds < fault.repaired_s + 5


def test_a_silent_exporter_is_noticed_and_costs_no_request() -> None:
    given = ask("dcgm-loss", "weights", seconds=40.0)
    runs = run_faults(given, quiet)
    figures = exporters(runs, given)
    assert figures["fallback_ms_faults"] == 3
    assert (figures["fallback_ms_max"] or 1e9) <= 700
    assert figures["success"] == 1.0


def test_jitter_has_a_gain_for_each_condition() -> None:
    given = ask("jitter", "v2", "v3", networks=("clean", "jitter_20ms"), seconds=20.0, rps=20.0)
    figures = jitter(run_networks(given, quiet), given)
    assert {"network_gain.clean", "network_gain.jitter_20ms"} <= figures.keys()


def test_lead_time_warns_of_heat_and_not_without() -> None:
    given = ask("lead-time", seconds=100.0)
    assert given.scenario.lead is not None
    lead = given.scenario.lead.model_copy(update={"stresses": ("thermal",), "time_constants_s": ()})
    fleet = given.fleet.model_copy(update={"sites": {"east": given.fleet.sites["east"][:2]}})
    small = Ask(
        **{
            **{name: getattr(given, name) for name in Ask.__dataclass_fields__},
            "scenario": given.scenario.model_copy(update={"lead": lead}),
            "fleet": fleet,
            "rps": 2.0,
        }
    )
    warned, figures = run_lead(small, "middle", 0.0, quiet)
    assert [each.cell for each in warned] == ["east-1", "east-2"]
    assert all(each.alert_s is not None and 60 < each.alert_s < 95 for each in warned)
    assert figures["false_alarms"] == 0
    assert figures["alerts"] == 2


def test_the_result_has_the_common_form(tmp_path: Path) -> None:
    path = tmp_path / "burst.json"
    given = ask("burst", "rr", "weights", seconds=20.0, json_path=path)
    simulate(given, "middle", 0.0, Console(file=io.StringIO(), width=120), FakeClock())
    data = json.loads(path.read_text())
    assert (data["scenario"], data["mode"], data["seed"]) == ("burst", "sim", 1)
    assert set(data["arms"]) == {"rr", "weights"}
    arm = data["arms"]["weights"]
    assert arm["requests"] == sum(cell["requests"] for cell in arm["per_cell"].values())
    assert "reaction_p95_ms.weights" in data["figures"]
    assert data["figures"]["bursts.weights"] == 1.0
    assert all("burst" in note for note in data["notes"])
    lines = path.with_suffix(".ndjson").read_text().splitlines()
    assert len(lines) == 2 * arm["requests"]
