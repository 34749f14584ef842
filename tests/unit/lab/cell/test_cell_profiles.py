"""Cells that play a known engine."""

from __future__ import annotations

import pytest

from headrace_lab.cell.commands import profiled
from headrace_lab.cell.settings import CellSettings
from headrace_lab.engine.profiles import profile
from headrace_lab.live.profiles import arguments
from headrace_lab.scenarios import packaged


def test_a_profile_is_the_engine_that_simulations_have() -> None:
    engine = profiled("h100/70b-awq", 32768, 0.5, 0.0)
    assert engine == profile("h100", "70b-awq", max_model_len=32768, speed=0.5).engine


def test_a_neighbour_on_the_host_link_slows_every_step() -> None:
    plain, crowded = (profiled("rtx-pro-6000/70b-awq", 32768, 1.0, share) for share in (0.0, 0.5))
    share = profile("rtx-pro-6000", "70b-awq").pcie_share
    assert crowded.speed == pytest.approx(plain.speed / (1 + share))


@pytest.mark.parametrize("name", ["h100", "h100/900b", "abacus/1b"])
def test_an_unknown_profile_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"profile|model|GPU"):
        profiled(name, 8192, 1.0, 0.0)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="contention"):
        profiled("edge/1b", 8192, 1.0, share)
    if share != 1.0:
        with pytest.raises(ValueError, match="refuse_share"):
            CellSettings(refuse_share=share)


def test_every_cell_of_every_fleet_can_be_played() -> None:
    for fleet in packaged().fleets.values():
        for plan in fleet.plans:
            options = arguments(plan, fleet.bytes_per_token)
            named = dict(zip(options[::2], options[1::2], strict=True))
            engine = profiled(
                named["--profile"],
                int(named["--max-model-len"]),
                float(named["--speed"]),
                float(named["--pcie-contention"]),
            )
            assert engine.max_model_len == plan.max_model_len
