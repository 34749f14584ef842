"""An explanation in words holds the numbers of the explanation, whatever state a cell is in."""

from __future__ import annotations

import json

import pytest

from headrace_controller.admin.answers import dump
from headrace_controller.control.intents.records import Actor
from headrace_controller.operator_cli.explained import explanation
from headrace_controller.operator_cli.tables import lines
from headrace_controller.operator_cli.terminal import Terminal
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.control.region import Region


def said(region: Region, cell: str) -> str:
    """What `headrace explain` prints for a cell at the first gateway."""
    found = region.loop.explain(cell, "gw-1")
    assert found is not None
    return "\n".join(lines(explanation(json.loads(dump(found))), Terminal()))


def loaded(more: str = "") -> Region:
    """c1 works hard, c2 does not, c3 has said Hello only."""
    region = Region(more)
    region.connect("c1", "c2", "c3")
    region.tick()
    for step in range(120):
        if step % 10 == 0:
            for cell, queue in (("c1", 12), ("c2", 1)):
                region.beat(
                    cell, signals=pb.Signals(queue_depth=queue, kv_fill=queue / 20, compute_active=0.5)
                )
        region.tick(0.05)
    return region


@pytest.mark.parametrize("projection", ["headroom", "equalise"])
def test_every_number_on_the_way_to_the_weight_is_there(projection: str) -> None:
    region = loaded(f"projection: {{name: {projection}}}\n")
    for cell in ("c1", "c2"):
        found, text = region.loop.explain(cell, "gw-1"), said(region, cell)
        assert found is not None
        (term,) = found.weights
        assert f"m: weight {term.weight} ({term.decision}" in text
        assert (
            f"target {term.target} = max(1, round(100 x room {term.room:.6f} / best {term.best:.6f}))" in text
        )
        assert f"= {found.pressure:.6f}" in text
        for signal in found.signals:
            assert signal.name in text
            assert f"{signal.contribution:.4f}" in text


@pytest.mark.parametrize("projection", ["headroom", "speed"])
def test_what_a_path_takes_is_said_and_only_then(projection: str) -> None:
    region = loaded(f"projection: {{name: {projection}}}\n")
    assert "x reach" not in said(region, "c1")
    found = region.loop.explain("c1", "gw-1")
    assert found is not None
    (term,) = found.weights
    assert term.reach == 1.0
    told = json.loads(dump(found))
    told["weights"][0] |= {"reach": 0.25, "excess_ms": 61.54}
    text = "\n".join(lines(explanation(told), Terminal()))
    assert "x reach 0.250000 (its path costs 61.5 ms more)" in text


def test_a_weight_that_an_operator_set_is_said_to_be_so() -> None:
    region = loaded()
    region.operators.override("c1", 42, "", Actor("anna"))
    region.tick()
    assert "m: weight 42 (an operator set 42; it was" in said(region, "c1")


def test_shadow_tells_what_it_holds_back() -> None:
    region = loaded()
    region.operators.shadow(True, "", Actor("anna"))
    region.tick()
    assert "without shadow it would be" in said(region, "c1")


def test_a_cell_without_a_weight_tells_why() -> None:
    assert "m: no weight: LOADING" in said(loaded(), "c3")


def test_a_signal_that_is_absent_shows_what_stands_in_for_it() -> None:
    text = said(loaded(), "c3")
    assert "(filled in)" in text
    assert "no quorum of signals" in text


def test_at_80_columns_no_name_is_broken() -> None:
    region = loaded()
    found = region.loop.explain("c1", "gw-1")
    assert found is not None
    made = list(lines(explanation(json.loads(dump(found))), Terminal(width=78)))
    assert max(map(len, made)) <= 78
    text = "\n".join(made)
    for signal in found.signals:
        assert signal.name in text
