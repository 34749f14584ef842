"""Figures of live runs, from records made for the purpose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.live import figures
from headrace_lab.live.layout import Layout
from headrace_lab.scenarios import CellPlan, packaged
from tests.unit.lab.live.making import at, fault, run, sample

PLANS: dict[str, CellPlan] = {plan.id: plan for plan in packaged().fleet("capability").plans}


def long(cell: str, **changes: object) -> dict[str, object]:
    return {"prompt_tokens": 2000, "max_tokens": 128, "first_cell": cell, **changes}


def test_leak_counts_long_requests_that_the_small_cell_refused() -> None:
    refused = {"first_status": 400, "first_ok": False, "status": 400, "done": False}
    records = (
        at(20, **long("east-1", first_status=200)),
        at(21, **long("central-2", **refused)),
        at(22, **long("east-2", **refused)),  # refused for another reason, by one that could hold it
        at(23, **long("", first_status=503, first_ok=False)),
        at(24, prompt_tokens=500, max_tokens=128, first_cell="central-2", **refused),
    )
    found = figures.leaks(run(records=records), PLANS, 10.0)
    assert found["leak.weights"] == 1 / 4
    assert found["long_success.weights"] == 1 / 4


def test_leak_leaves_out_the_warm_up_and_says_what_it_was() -> None:
    early = at(1, **long("central-2", first_status=400, first_ok=False))
    late = at(30, **long("east-1"))
    found = figures.leaks(run(records=(early, late)), PLANS, 10.0)
    assert found["leak.weights"] == 0.0
    assert found["leak_whole.weights"] == 0.5


def test_no_long_request_is_no_leak_figure() -> None:
    """Nothing measured must not read as a perfect score."""
    found = figures.leaks(run(records=(at(20),)), PLANS, 0.0)
    assert found["leak.weights"] is None
    assert found["long_success.weights"] is None


def test_refusals_are_those_of_the_refusing_cell() -> None:
    plans = {plan.id: plan for plan in packaged().fleet("refusing").plans}
    records = (at(1, first_cell="central-2", first_status=400), at(2, first_cell="east-1", first_status=400))
    assert figures.refusals(run(records=records), plans, 0.0) == {"refused.weights": 0.5}


def test_detection_is_pooled_and_a_miss_leaves_no_p99() -> None:
    quick = [fault(10.0 * i, gone_s=10.0 * i + 0.04) for i in range(1, 5)]
    found = figures.detections([run("rr", faults=(fault(1, shunned_s=4.0),)), run(faults=tuple(quick))])
    assert found["detect_ms_p50"] == pytest.approx(40.0)
    assert found["detect_ms_p99"] == pytest.approx(40.0)
    assert found["faults.rr"] == found["undetected.rr"] == 1.0
    assert found["marked_ms_p50.rr"] == 3000.0
    assert "detect_ms_p99.rr" not in found
    missed = figures.detections([run(faults=(*quick, fault(99)))])
    assert missed["detect_ms_p99"] is None
    assert missed["undetected.weights"] == 1.0


def test_reroute_is_the_excess_over_the_same_quantile_without_a_fault() -> None:
    usual = tuple(at(5 + i / 100, 100.0) for i in range(200))
    struck = tuple(at(20 + i / 20, 400.0, first_ok=i % 2 == 0) for i in range(1, 100))
    found = figures.reroutes(run(records=usual + struck, faults=(fault(20.0),)), 10.0)
    assert found["without_fault_p99_ms.weights"] == 100.0
    assert found["reroute_p99_ms.weights"] == pytest.approx(300.0)
    assert found["post_kill_success.weights"] == pytest.approx(49 / 99)
    assert found["after_fault_requests.weights"] == 99.0


def test_a_request_lost_to_the_fault_is_not_what_is_usual() -> None:
    """It was sent before the fault and tried again after it: its time is the fault's doing."""
    lost = at(19.5, 5000.0, first_ok=False)
    found = figures.reroutes(run(records=(at(10.0), lost), faults=(fault(20.0),)), 10.0)
    assert found["without_fault_p99_ms.weights"] == 100.0


def test_a_request_never_answered_counts_with_its_whole_time() -> None:
    never = at(21.0, first_ok=False, status=0, done=False, error="time-out").__class__(
        **{**at(21.0).as_json(), "status": 0, "ttft_ms": None, "e2e_ms": 60_000.0, "first_ok": False}
    )
    assert figures.reroute_ms(never) == 60_000.0


def test_windows_of_faults_are_open_at_their_start() -> None:
    records = (at(20.0), at(20.001), at(30.0), at(30.001))
    found = figures.after_faults(run(records=records, faults=(fault(20.0),)), 10.0)
    assert [r.due_s for r in found] == [20.001, 30.0]


def test_weight_ratio_compares_kinds_of_cells() -> None:
    samples = tuple(sample(t, central_2=1, east_1=50, east_2=50) for t in range(20))
    found = figures.weight_ratio(run(samples=samples), PLANS, 5.0)
    assert found["weight_ratio.weights"] == 50.0
    none = figures.weight_ratio(run(samples=(sample(9, central_2=0, east_1=50),)), PLANS, 5.0)
    assert none["weight_ratio.weights"] is None


def test_reaction_is_the_first_change_of_weights_after_a_burst() -> None:
    samples = [sample(t / 10, east_1=50) for t in range(150)]
    samples += [sample(15.0 + t / 10, east_1=50 if t < 8 else 40) for t in range(100)]
    found = figures.reactions(run(samples=tuple(samples)), [15.0], 10.0)
    assert found["reaction_p95_ms.weights"] == pytest.approx(800.0)
    calm = figures.reactions(run(samples=tuple(samples[:150])), [5.0], 5.0)
    assert calm["reaction_p95_ms.weights"] is None
    assert calm["reactions_seen.weights"] == 0.0


def test_a_burst_that_no_weight_answered_leaves_no_p95() -> None:
    """Its time is not known, and the others' alone would look better than it was."""
    found = figures.reaction_figures("weights", [15.4, 75.2], [15.0, 45.0, 75.0], 30.0)
    assert found["reaction_p95_ms.weights"] is None
    assert (found["reactions_seen.weights"], found["bursts.weights"]) == (2.0, 3.0)


def test_weights_that_move_all_the_time_are_seen_to() -> None:
    found = figures.reaction_figures("weights", [t / 2 for t in range(300)], [15.1, 45.1], 30.0)
    assert found["reaction_p95_ms.weights"] == pytest.approx(400.0)
    assert found["reaction_usual_p95_ms.weights"] == pytest.approx(400.0)
    calm = figures.reaction_figures("weights", [15.5, 45.5], [15.0, 45.0], 30.0)
    assert calm["reaction_p95_ms.weights"] == pytest.approx(500.0)
    assert calm["reaction_usual_p95_ms.weights"] is None, "after the last burst nothing moved any more"


def test_figures_without_an_arm_are_those_of_the_default_whatever_the_order() -> None:
    quick = run("weights", faults=(fault(10, gone_s=10.04),))
    slow = run("v3", faults=(fault(10, gone_s=10.5),))
    assert figures.detections([quick, slow])["detect_ms_p99"] == pytest.approx(40.0)
    assert figures.detections([slow])["detect_ms_p99"] == pytest.approx(500.0)
    lost = [
        run(arm, records=(at(11, first_ok=ok),), faults=(fault(10, kind="exporter", noticed_s=10 + s),))
        for arm, ok, s in (("weights", True, 0.3), ("v3", False, 0.4))
    ]
    found = figures.fallbacks(lost)
    assert (found["success"], found["success_whole.v3"]) == (1.0, 0.0)
    assert found["fallback_ms_max"] == found["fallback_ms_max.weights"] == pytest.approx(300.0)
    assert found["fallback_ms_max.v3"] == pytest.approx(400.0)


def test_arms_that_should_meet_are_told_how_far_apart_they_are() -> None:
    p99 = {"ttft_p99_ms.rr": 1000.0, "ttft_p99_ms.weights": 1030.0, "ttft_p99_ms.lr": None}
    assert figures.meeting(p99, ["rr", "lr", "weights"])["ttft_p99_spread"] == pytest.approx(0.03)
    assert figures.meeting(p99, ["rr"])["ttft_p99_spread"] is None


def test_network_gain_is_by_condition_against_eight_signals() -> None:
    def one(arm: str, condition: str, ttft: float) -> figures.ArmRun:
        return run(arm, condition=condition, records=tuple(at(20 + i, ttft) for i in range(40)))

    runs = [one("v2", "clean", 100), one("v3", "clean", 100), one("v2", "noisy", 100), one("v3", "noisy", 70)]
    found = figures.network_gain(runs, 10.0)
    assert found["network_gain.clean"] == 0.0
    assert found["network_gain.noisy"] == pytest.approx(0.3)
    assert "network_gain_vs_rr.noisy" not in found
    assert found["success.v3.noisy"] == 1.0
    more = [*runs, one("weights", "noisy", 60), one("oracle", "noisy", 40)]
    found = figures.network_gain(more, 10.0)
    assert found["network_gain_weights.noisy"] == pytest.approx(0.4)
    assert found["network_gain_bound.noisy"] == pytest.approx(0.6)
    assert "network_gain_bound.clean" not in found


def test_notices_have_no_maximum_where_one_was_never_noticed() -> None:
    seen = fault(10.0, noticed_s=10.3)
    assert figures.notices([seen], "fallback_ms")["fallback_ms_max"] == pytest.approx(300.0)
    assert figures.notices([seen, fault(20.0)], "fallback_ms")["fallback_ms_max"] is None
    assert figures.notices([], "fallback_ms")["fallback_ms_max"] is None


def test_gaps_count_from_the_start_to_the_end_of_the_load() -> None:
    samples = tuple(sample(float(t), a=1) for t in (1, 2, 9))
    assert figures.widest_gap_s(run(samples=samples), 20.0) == 11.0
    assert figures.widest_gap_s(run(samples=samples), 10.0) == 7.0
    assert figures.widest_gap_s(run(samples=samples), 10.0, [(2.0, 8.0)]) == pytest.approx(1.0)
    assert figures.widest_gap_s(run(), 10.0) == 10.0


def test_a_ratio_against_nothing_is_absent() -> None:
    assert figures.against({"x.a": 6.0, "x.b": 2.0}, "x", "a", "b") == {"x_ratio.a_b": 3.0}
    assert figures.against({"x.a": 6.0, "x.b": -2.0}, "x", "a", "b") == {"x_ratio.a_b": None}
    assert figures.against({"x.a": 6.0}, "x", "a", "b") == {"x_ratio.a_b": None}


@given(st.lists(st.floats(0, 1e6), max_size=50), st.floats(0, 1))
def test_a_quantile_lies_among_its_values(values: list[float], q: float) -> None:
    found = figures.quantile(values, q)
    assert (found is None) == (not values)
    if found is not None:
        assert min(values) - 1e-6 <= found <= max(values) + 1e-6


def test_layouts_may_have_a_node_for_each_cell() -> None:
    from headrace_lab.live.layout import lay_out

    one: Layout = lay_out(packaged().fleet("homogeneous"))
    assert len(one.fleet.sites) == 3
    assert one.cells_of_node("east-node") == ("east-1", "east-2", "east-3")
    nine = lay_out(packaged().fleet("homogeneous"), node_per_cell=True)
    assert len({site.node for site in nine.fleet.sites}) == 9
    assert nine.nodes_of_site("west") == ("west-1-node", "west-2-node", "west-3-node")
    ports = [cell.port for cell in nine.fleet.cells]
    ports += [p for site in nine.fleet.sites for p in (site.agent_port, site.exporter_port)]
    assert len(set(ports)) == 27
