"""Which figures a scenario's result holds."""

from __future__ import annotations

import json

import pytest

from headrace_lab.demo.result import Check
from headrace_lab.live.ask import Ask, Options, look_up
from headrace_lab.live.assess import assess
from headrace_lab.live.layout import lay_out
from headrace_lab.live.outcome import Outcome, trust
from headrace_lab.live.report import findings
from headrace_lab.live.seen import ArmRun
from headrace_lab.scenarios import packaged
from tests.unit.lab.live.making import at, fault, run, sample

LAYOUT = lay_out(packaged().fleet("homogeneous"))


def ask(name: str, *arms: str, **changes: object) -> Ask:
    return look_up(Options(name, arms=arms, **changes), packaged())  # type: ignore[arg-type]


def struck(arm: str, ttft_ms: float, **changes: object) -> ArmRun:
    records = (*(at(5 + i / 10) for i in range(100)), *(at(20.01 + i / 10, ttft_ms) for i in range(90)))
    return run(arm, records=records, faults=(fault(20.0, **changes),))


def test_failover_compares_reroutes_with_round_robin() -> None:
    runs = [struck("rr", 4000.0, shunned_s=23.0), struck("weights", 300.0, gone_s=20.05)]
    found = assess(runs, ask("failover", "rr", "weights", kind="kill"), LAYOUT)
    assert found["detect_ms_p99"] == pytest.approx(50.0)
    assert found["reroute_p99_ms.rr"] == pytest.approx(3900.0)
    assert found["reroute_p99_ms_ratio.rr_weights"] == pytest.approx(3900 / 200)
    assert found["post_kill_success.weights"] == 1.0


def test_a_peer_has_no_detection_but_has_reroutes() -> None:
    found = assess([struck("vllm-router", 300.0)], ask("failover", "vllm-router"), LAYOUT)
    assert "undetected.vllm-router" not in found
    assert found["faults.vllm-router"] == 1.0
    assert found["reroute_p99_ms.vllm-router"] == pytest.approx(200.0)


def test_exporters_give_success_and_the_slowest_fallback() -> None:
    seen = tuple(fault(10.0 * i, kind="exporter", noticed_s=10.0 * i + 0.1 * i) for i in range(1, 4))
    one = run("weights", records=(at(12), at(13, first_ok=False)), faults=seen)
    found = assess([one], ask("dcgm-loss"), LAYOUT)
    assert found["fallback_ms_max"] == pytest.approx(300.0)
    assert found["success"] == 0.5


def test_bursts_are_those_of_the_load() -> None:
    samples = tuple(sample(t / 5, east_1=50 if t < 80 else 40) for t in range(600))
    found = assess([run("weights", samples=samples)], ask("burst", "weights"), LAYOUT)
    assert found["bursts.weights"] == 4.0
    assert found["reactions_seen.weights"] == 1.0
    assert found["reaction_p95_ms.weights"] is None
    (said,) = findings(ask("burst", "weights"), found)
    assert "1 of 4 bursts" in said


def test_above_saturation_arms_should_meet_and_the_result_says_how_far_they_do() -> None:
    runs = [
        run(arm, records=tuple(at(20 + i, ms) for i in range(9))) for arm, ms in (("rr", 100), ("lr", 110))
    ]
    wanted = ask("saturation", "rr", "lr")
    found = assess(runs, wanted, LAYOUT)
    assert found["ttft_p99_spread"] == pytest.approx(0.1)
    (said,) = findings(wanted, found)
    assert "should meet" in said
    assert "10.0 % above" in said


def test_capability_has_leaks_or_refusals() -> None:
    leaking = assess([run("weights")], ask("capability", "weights"), LAYOUT)
    assert "leak.weights" in leaking
    wanted = ask("capability", "weights", variant="refusing")
    refusing = assess([run("weights")], wanted, lay_out(wanted.fleet))
    assert "refused.weights" in refusing
    assert "leak.weights" not in refusing


def test_controller_loss_counts_success_meanwhile() -> None:
    records = (at(5), at(35), at(36, first_ok=False))
    one = run("weights", records=records, faults=(fault(30.0, kind="controller", noticed_s=62.0),))
    found = assess([one], ask("controller-loss"), LAYOUT)
    assert found["success_meanwhile.weights"] == 0.5
    assert found["success_whole.weights"] == pytest.approx(2 / 3)


def test_a_run_without_samples_is_not_to_be_trusted() -> None:
    wanted = ask("burst", "weights", seconds=30.0)
    watched = run("weights", records=(at(1),), samples=tuple(sample(float(t), a=1) for t in range(31)))
    assert all(check.ok for check in trust([watched], wanted))
    blind = {check.name: check.ok for check in trust([run("weights", records=(at(1),))], wanted)}
    assert not blind["longest time without a sample"]
    assert blind["load was sent"]
    none = {check.name: check.ok for check in trust([run("weights")], wanted)}
    assert not none["load was sent"]


def test_while_the_controller_is_away_on_purpose_no_sample_is_missed() -> None:
    wanted = ask("controller-loss", seconds=60.0)
    times = [t for t in range(61) if not 20 <= t < 40]
    away = fault(20.0, kind="controller", repaired_s=40.0)
    one = run(
        "weights", records=(at(1),), samples=tuple(sample(float(t), a=1) for t in times), faults=(away,)
    )
    assert all(check.ok for check in trust([one], wanted))


def test_the_result_has_the_form_that_all_results_share() -> None:
    wanted = ask("failover", "rr", "weights", kind="hang")
    runs = (struck("rr", 4000.0), struck("weights", 300.0, gone_s=20.05))
    checks = (Check("a", True, "1", "1"), Check("b", False, "2", "1", enforced=False))
    outcome = Outcome(wanted, LAYOUT, runs, assess(runs, wanted, LAYOUT), checks, ("a note",))
    assert outcome.worked
    data = json.loads(json.dumps(outcome.as_json({"cores": 2}), allow_nan=False))
    assert {"scenario", "mode", "seed", "seconds", "fleet", "arms", "figures"} <= set(data)
    assert data["mode"] == "live"
    assert len(data["fleet"]) == 9
    assert set(data["arms"]["rr"]["per_cell"]) == set(LAYOUT.plans)
    assert data["faults"]["weights"][0]["at_s"] == 20.0
    assert data["figures"]["detect_ms_p50"] == pytest.approx(50.0)
    assert {"late_p99_ms.rr", "late_p99_ms.weights"} <= set(data["figures"])
    assert data["notes"] == ["a note"]
