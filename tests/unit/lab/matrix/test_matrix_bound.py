"""What no placement can pass."""

from __future__ import annotations

import math

import pytest
import typer

from headrace_lab.engine.profiles import profile
from headrace_lab.matrix.bound import figures, prefill_rps
from headrace_lab.matrix.commands import named
from headrace_lab.matrix.result import Matrix, scenario
from headrace_lab.matrix.summary import summarise
from headrace_lab.matrix.work import Row
from headrace_lab.scenarios import packaged

CATALOGUE = packaged()


def test_it_is_the_prefill_rate_of_all_cells_over_the_work_of_a_prompt() -> None:
    fleet, load = CATALOGUE.fleet("homogeneous"), CATALOGUE.load("rapid_shift")
    plan = fleet.plans[0]
    engine = profile(plan.gpu, plan.model, max_model_len=plan.max_model_len).engine
    cell_rps = 1 / (1024 / engine.prefill_tokens_per_s + 1024**2 / 2 * engine.attention_per_pair_s)
    assert prefill_rps(fleet, load) == pytest.approx(9 * cell_rps, rel=0.15)


def test_a_slower_cell_lowers_it_by_its_part() -> None:
    load = CATALOGUE.load("code_heavy")
    whole = prefill_rps(CATALOGUE.fleet("homogeneous"), load)
    lower = prefill_rps(CATALOGUE.fleet("perturbed"), load)
    assert lower / whole == pytest.approx((8 + 0.6) / 9, rel=1e-6)


@pytest.mark.parametrize("load", ["multiturn", "mooncake"])
def test_prompts_that_share_their_beginnings_have_none(load: str) -> None:
    assert math.isnan(prefill_rps(CATALOGUE.fleet("homogeneous"), CATALOGUE.load(load)))


def test_its_ratio_is_to_what_round_robin_sustains() -> None:
    rows = [
        Row("perturbed", "code_heavy", arm, "middle", 0, 1, 1e3, rps, rps, 8)
        for arm, rps in (("rr", 8.0), ("oracle", 9.0))
    ]
    found = figures({"code_heavy": 10.0}, summarise(rows, 100, 0.95))
    assert found == {"prefill_rps.code_heavy": 10.0, "ratio_bound_vs_rr.code_heavy.middle": 1.25}


def test_a_choice_of_loads_is_no_result_of_the_whole() -> None:
    def made(*loads: str, quick: bool = False) -> str:
        rows = [Row("perturbed", load, "rr", "middle", 0, 1, 1e3, 1.0, 1.0, 8) for load in loads]
        lines = tuple(summarise(rows, 100, 0.95))
        return scenario(Matrix("perturbed", tuple(rows), lines, (), {}, 0.05, {"quick": quick}))

    assert made("azure_conv", "azure_code") == "matrix/perturbed (azure_conv, azure_code)"
    assert made(*CATALOGUE.matrix_loads, "azure_conv") == "matrix/perturbed"
    assert made("code_heavy", quick=True) == "matrix/perturbed"


def test_loads_may_be_named() -> None:
    assert named("azure_conv, code_heavy,azure_conv", CATALOGUE) == ("azure_conv", "code_heavy")
    for wrong in ("code_heavy,nope", " ,"):
        with pytest.raises(typer.BadParameter):
            named(wrong, CATALOGUE)
