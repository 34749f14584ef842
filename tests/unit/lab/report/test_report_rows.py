"""Each figure of ours beside the published one, and what is missing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace_lab.cli import app
from headrace_lab.report.results import Result, fitting, newest
from headrace_lab.report.rows import Row, further, how, rows, side_by_side, unmeasured_arms
from headrace_lab.scenarios import packaged
from tests.unit.lab.report.making import CAPABILITY, ENVIRONMENT, MATRIX, result


def test_a_measured_figure_stands_beside_the_published_one() -> None:
    (row,) = [each for each in rows([CAPABILITY], "out") if each.what.startswith("long prompts leaked")]
    assert (row.theirs, row.found) == ("0.43 %", {"rr": "32.10 %", "weights": "0.00 %"})
    assert row.mode == "live, mixed_30_long, 10 RPS, 1,500 requests an arm"
    assert row.command == ENVIRONMENT["command"]


def test_what_was_not_measured_is_missing_with_its_command_and_never_made_up() -> None:
    found = rows([], "some/dir")
    assert all(row.missing and not row.found for row in found)
    assert all("some/dir" in row.command for row in found)
    assert {row.what for row in found}.isdisjoint(row.what for row in further([], "out"))


REFERENCE = (
    "0.43 %",
    "1,247 ms",
    "99.76 %",
    "500 ms (one heartbeat)",
    "1.56-1.75x in eight classes",
    "-27.9 %",
    "134 : 134 : 1",
    "12-28 % over five conditions",
    "11.2 s (mean of 9)",
    "99.90 %",
    "824 ms",
    "0.2 ms",
)
"""The column of reference figures in the design's first section."""


@pytest.mark.parametrize("figure", REFERENCE)
def test_every_reference_figure_has_a_row(figure: str) -> None:
    assert any(row.theirs == figure for row in rows([], "out"))


def test_every_scenario_of_the_file_has_a_row() -> None:
    named = " ".join(row.command for row in (*rows([], "out"), *further([], "out")))
    for name in packaged().scenarios:
        assert f" {name} " in named or f"--fleet {name} " in named, name
    for kind in packaged().scenario("failover").kinds:
        assert f"--kind {kind} " in named
    for variant in packaged().scenario("capability").variants:
        assert f"--variant {variant} " in named


def test_the_commands_for_what_is_missing_are_ones_that_there_are() -> None:
    runner = CliRunner()
    for row in (*rows([], "out"), *further([], "out")):
        words = row.command.removeprefix("sudo ").split()
        if words[0] == "make":
            continue
        assert words[0] == "headrace-lab"
        shown = runner.invoke(app, [words[1], "--help"]).output
        for option in [word for word in words if word.startswith("--")]:
            assert option in re.sub(r"\x1b\[[0-9;]*m", "", shown), row.command


def test_live_and_simulated_results_both_stand() -> None:
    sim = result("capability", "sim", {"leak.rr": 0.33})
    found = [each for each in rows([CAPABILITY, sim], "out") if each.what.startswith("long prompts leaked")]
    assert [each.mode.split(",")[0] for each in found] == ["live", "sim"]


def test_the_newest_result_that_can_be_trusted_counts() -> None:
    def at(date: str, leak: float, **more: Any) -> Result:
        environment = {**ENVIRONMENT, "date": date}
        return result("capability", "live", {"leak.rr": leak}, **more | {"environment": environment})

    older, newer = at("2026-01-01", 0.1), at("2026-01-03", 0.2)
    broken = at("2026-01-04", 0.3, worked=False)
    assert newest([newer, older, broken], "capability", "live") is newer
    quick = at("2026-01-06", 0.5, quick=True)
    assert newest([newer, quick], "capability", "live") is newer
    assert newest([quick], "capability", "live") is quick
    other = at("2026-01-05", 0.4, variant="all_long")
    assert newest([newer, other], "capability", "live") is newer


def of_what(found: list[Row], what: str) -> list[Row]:
    return [each for each in found if each.what.startswith(what)]


def test_arms_that_were_run_apart_have_a_row_of_their_own() -> None:
    """A later run of a peer alone must not hide what was measured before it."""
    peers = result("capability", "live", {"leak.rr": 0.3, "leak.vllm-router": 0.31}, load="mixed_30_long")
    later = {**ENVIRONMENT, "date": "2026-01-05"}
    peers = result("capability", "live", peers.figures | {}, load="mixed_30_long", environment=later)
    again = result("capability", "live", {"leak.rr": 0.32}, load="mixed_30_long")
    found = of_what(rows([again, CAPABILITY, peers], "out"), "long prompts leaked")
    assert [set(row.found) for row in found] == [{"rr", "vllm-router"}, {"rr", "weights"}]


def fleet(rps: float, date: str, load: str = "baseline_mixed", seconds: float = 60.0) -> Result:
    environment = {**ENVIRONMENT, "date": date}
    figures = {"ttft_p95_ms.rr": rps, "ttft_p95_ms.weights": 2 * rps, "success.rr": 0.99}
    more = {"load": load, "seconds": seconds, "environment": environment}
    return result("heterogeneous", "live", figures, rps=rps, **more)


def test_the_rate_that_is_meant_comes_first_and_another_load_does_not_count() -> None:
    eight, twelve, other = (
        fleet(8, "2026-01-04"),
        fleet(12, "2026-01-03"),
        fleet(12, "2026-01-05", "azure_code"),
    )
    assert fitting([eight, other, twelve], "heterogeneous", "live", rps=12.0) == [twelve, eight]
    assert fitting([twelve, other, eight], "heterogeneous", "live") == [eight, twelve]


def test_a_run_that_was_cut_short_comes_after_a_whole_one_and_says_so() -> None:
    whole, short = fleet(12, "2026-01-03"), fleet(12, "2026-01-04", seconds=20.0)
    assert fitting([short, whole], "heterogeneous", "live") == [whole, short]
    assert how(short).endswith("cut short")
    few = result("failover", "live", {"faults.rr": 3.0}, kind="kill", seconds=430.0)
    enough = result("failover", "live", {"faults.rr": 20.0}, kind="kill", seconds=430.0)
    assert (few.whole, enough.whole) == (False, True)


def test_fleets_at_one_rate_stand_side_by_side_whatever_their_load() -> None:
    ((found, values),) = side_by_side([fleet(12, "2026-01-05", "azure_code"), CAPABILITY])
    assert found.load == "azure_code"
    assert values == {"rr": "12 ms (99.0 % good)", "weights": "24 ms"}


def test_a_gain_stands_under_the_arm_that_has_it() -> None:
    gains = {"network_gain": 0.4, "network_gain_weights": 0.5, "network_gain_bound": 0.7}
    jitter = result("jitter", "sim", {f"{name}.spread": value for name, value in gains.items()})
    (row,) = of_what(rows([jitter], "out"), "P95 TTFT gain of the network signals, unequal")
    assert row.found == {"v3": "40.00 %", "weights": "50.00 %", "oracle": "70.00 %"}


def test_a_row_says_how_much_it_is_from_and_whether_the_load_was_late() -> None:
    late = {"requests sent on time (P99)": {"ok": False, "found": "90.0 ms late"}}
    kill = result(
        "failover",
        "live",
        {"post_kill_success.weights": 1.0, "faults.weights": 20.0, "faults.rr": 19.0},
        kind="kill",
        rps=10.0,
        checks=late,
    )
    (row,) = of_what(rows([kill], "out"), "success of requests sent after the kill")
    assert row.mode == "live, 10 RPS, 19 faults an arm, load sent late (P99 90 ms)"


def test_arms_that_no_result_has_are_named() -> None:
    absent = unmeasured_arms(rows([CAPABILITY, MATRIX], "out"))
    assert {"vllm-router", "sglang-router", "oracle", "lr"} <= set(absent)
    assert not {"rr", "weights"} & set(absent)


def test_traces_are_no_part_of_the_classes_figure() -> None:
    both = result(
        "matrix/perturbed",
        "sim",
        {"ratio_vs_rr.code_heavy.middle.weights": 1.5, "ratio_vs_rr.azure_conv.middle.weights": 1.1},
    )
    (classes,) = [each for each in rows([both], "out") if each.what.endswith("tier, perturbed")]
    assert classes.found == {"weights": "1.50-1.50x, median 1.50x"}
    (traces,) = [each for each in further([both], "out") if each.what.endswith("traces, perturbed")]
    assert traces.found == {"weights": "1.10-1.10x, median 1.10x"}
    (none,) = [each for each in further([MATRIX], "out") if each.what.endswith("traces, homogeneous")]
    assert none.missing


def test_a_matrix_of_chosen_traces_is_counted_for_the_traces_alone() -> None:
    name = "matrix/homogeneous (azure_conv, azure_code)"
    ratios = {"azure_conv": 1.1, "azure_code": 1.5}
    figures = {f"ratio_vs_rr.{load}.middle.headrace": ratio for load, ratio in ratios.items()}
    both = [MATRIX, result(name, "sim", figures)]
    (traces,) = [each for each in further(both, "out") if each.what.endswith("traces, homogeneous")]
    assert traces.found == {"headrace": "1.10-1.50x, median 1.30x"}
    (classes,) = [each for each in rows(both, "out") if each.what.endswith("tier, homogeneous")]
    assert "headrace" not in classes.found


def test_a_matrix_gives_its_range_over_the_loads_of_the_middle_tier() -> None:
    found = {row.what: row for row in rows([MATRIX], "out")}
    row = found["sustainable RPS against round-robin, middle SLO tier, homogeneous"]
    assert row.found == {"weights": "0.90-1.20x, median 1.05x"}
    quick = result("matrix/homogeneous", "sim", MATRIX.figures | {}, quick=True)
    (hasty,) = [each for each in rows([quick], "out") if each.what == row.what]
    assert (row.mode, hasty.mode) == ("sim", "sim, quick")
    below = found["P99 TTFT below saturation against round-robin, equal cells, baseline_mixed"]
    assert below.found == {"weights": "-20.0 %"}


def test_a_figure_that_a_run_could_not_give_is_not_asked_for_again() -> None:
    burst = result("burst", "live", {"reaction_p95_ms.weights": None, "bursts.weights": 4.0}, rps=10.0)
    (row,) = of_what(rows([burst], "out"), "weights have moved after a burst")
    assert (row.missing, row.found) == (False, {})
    assert row.mode == "live, 10 RPS: no such figure, see what the run says of itself"


@pytest.mark.parametrize(("late_ms", "counts"), [(249.0, True), (580.0, False)])
def test_a_load_that_was_sent_far_too_late_is_no_measurement(late_ms: float, counts: bool) -> None:
    said = {"requests sent on time (P99)": {"ok": False, "found": f"{late_ms} ms late"}}
    old = result("capability", "live", {"leak.rr": 0.3}, checks=said)
    new = result("capability", "live", {"leak.rr": 0.3, "late_p99_ms.rr": 5.0, "late_p99_ms.lr": late_ms})
    assert (old.trusted, new.trusted) == (counts, counts)
    assert bool(fitting([old], "capability", "live")) is counts
