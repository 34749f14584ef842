"""From facts to a plan in classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.capability import NO_GUIDE, Guide
from headrace_controller.inventory import Fleet
from headrace_controller.inventory.facts import CellFacts, ModelFacts, same_for_gateways
from headrace_controller.lifecycle import CellState
from headrace_controller.projection import Plan, PlanBuilder, baseline_plan
from headrace_controller.projection.plan import PLAIN
from headrace_controller.projection.shapes import shape_of
from headrace_controller.settings import CapabilitySettings
from headrace_pb.v1 import telemetry_pb2 as pb

GATEWAYS = ("g", "h")


def cell(length: int | None = 4096, path: str = "/health", tls: bool = False) -> CellFacts:
    return CellFacts(
        "c", "n", "s", "10.0.0.1", 8000, models=(ModelFacts("m", length),), health_path=path, tls=tls
    )


def fleet_of(**lengths: int | None) -> Fleet:
    fleet = Fleet(GATEWAYS)
    for number, (name, length) in enumerate(lengths.items()):
        model = pb.ModelFacts(id="m")
        if length is not None:
            model.max_model_len = length
        facts = pb.CellFacts(
            cell_id=name, address=pb.Address(host="10.0.0.1", port=8000 + number), models=[model]
        )
        fleet.register(f"n-{name}", "s", pb.Hello(incarnation=1, cells=[facts]), 0.0)
    return fleet


def build(fleet: Fleet, weights: dict[str, int], guide: Guide = NO_GUIDE) -> Plan:
    """The plan of the cells that have a weight, the same at both gateways."""
    pools = fleet.pools()
    rows = {fleet.row(name): weight for name, weight in weights.items()}
    members = np.flatnonzero(np.isin(pools.row, list(rows)))
    told = np.array([[rows[row] for row in pools.row[members].tolist()]] * 2, dtype=np.int64)
    return PlanBuilder(GATEWAYS, guide).build(fleet, pools, members, told.reshape(2, len(members)))


def classes_of(plan: Plan, gateway: str = "g") -> list[dict[str, int]]:
    return [{each.cell_id: each.weight for each in one[gateway]} for one in plan.classes.get("m", ())]


def test_an_adapter_is_as_long_as_its_base() -> None:
    models = (ModelFacts("base", 4096), ModelFacts("sql", None, "base"), ModelFacts("odd", None, "gone"))
    facts = replace(cell(), models=models)
    assert [facts.length_of(each) for each in ("base", "sql", "odd", "other")] == [4096, 4096, None, None]


def test_a_pool_is_checked_where_all_that_know_their_path_agree() -> None:
    def path(*cells: CellFacts) -> str:
        return shape_of("m", cells, NO_GUIDE).health_path

    assert path(cell(path=""), cell(path="")) == "/health"
    assert path(cell(path=""), cell(path="/v1/models")) == "/v1/models"
    assert path(cell(path="/health"), cell(path="/v1/models")) == ""


def test_what_gateways_are_told_differs_by_path_and_tls() -> None:
    assert same_for_gateways(cell(), cell())
    assert not same_for_gateways(cell(), cell(path="/v1/models"))
    assert not same_for_gateways(cell(), cell(tls=True))


def test_a_pool_of_one_length_is_as_it_was() -> None:
    plan = build(fleet_of(a=4096, b=4096, c=None), {"a": 1, "b": 2, "c": 3})
    assert (plan.shape("m").classes, dict(plan.classes)) == ((), {})
    assert plan.shape("m").max_model_len == 4096
    assert build(fleet_of(a=None), {"a": 1}).shape("m") is PLAIN


def test_large_cells_serve_all_classes_and_the_pool_holds_everybody() -> None:
    fleet = fleet_of(a=1024, b=8192, c=32768, d=None)
    plan = build(fleet, {"a": 100, "b": 50, "c": 20, "d": 10})
    assert classes_of(plan) == [
        {"a": 100, "b": 50, "c": 20, "d": 10},
        {"b": 50, "c": 20, "d": 10},
        {"c": 20, "d": 10},
    ]
    assert [each.cell_id for each in plan.pools["m"]["g"]] == ["a", "b", "c", "d"]
    assert [each.max_model_len for each in plan.shape("m").classes] == [1024, 8192, 32768]
    assert plan.shape("m").classes[-1].bounds == ()


def test_the_mix_scales_the_weights_of_each_class() -> None:
    guide = Guide(mix={"m": {1024: 0.6, 32768: 0.4}})
    plan = build(fleet_of(a=1024, b=32768, c=32768), {"a": 100, "b": 100, "c": 100}, guide)
    assert classes_of(plan) == [{"a": 100, "b": 40, "c": 40}, {"b": 100, "c": 100}]
    # The pool's own weights are those of all requests together.
    assert [each.weight for each in plan.pools["m"]["g"]] == [100, 100, 100]


def test_a_mix_of_other_classes_is_none() -> None:
    guide = Guide(mix={"m": {2048: 0.6, 32768: 0.4}})
    plan = build(fleet_of(a=1024, b=32768), {"a": 100, "b": 100}, guide)
    assert classes_of(plan) == [{"a": 100, "b": 100}, {"b": 100}]


def test_no_class_is_empty_while_any_cell_is_ready() -> None:
    fleet = fleet_of(a=1024, b=8192, c=32768)
    assert classes_of(build(fleet, {"c": 7})) == [{"c": 7}] * 3
    assert classes_of(build(fleet, {"a": 7})) == [{"a": 7}] * 3
    assert classes_of(build(fleet, {"a": 7, "b": 8})) == [{"a": 7, "b": 8}, {"b": 8}, {"b": 8}]
    assert classes_of(build(fleet, {})) == [{}, {}, {}]


def test_the_shape_is_that_of_all_known_cells_and_stays_the_same_object() -> None:
    fleet = fleet_of(a=1024, b=32768)
    builder, pools = PlanBuilder(GATEWAYS), fleet.pools()
    everybody = builder.build(fleet, pools, np.arange(2), np.full((2, 2), 5))
    one = builder.build(fleet, pools, np.arange(1), np.full((2, 1), 5))
    assert one.shapes is everybody.shapes
    builder.guide = Guide(mix={"m": {1024: 0.5, 32768: 0.5}})
    assert builder.build(fleet, pools, np.arange(2), np.full((2, 2), 5)).shapes is everybody.shapes


def test_a_baseline_has_no_classes() -> None:
    fleet = fleet_of(a=1024, b=32768)
    fleet.state[:2] = CellState.READY
    plan = baseline_plan(fleet, GATEWAYS)
    assert plan.shape("m").classes == ()
    assert not plan.classes
    assert baseline_plan(fleet, GATEWAYS) == plan


def test_classes_can_be_switched_off_and_bounded() -> None:
    lengths = {f"c{number}": 1024 * 2**number for number in range(6)}
    weights = dict.fromkeys(lengths, 1)
    bounded = build(fleet_of(**lengths), weights, Guide(CapabilitySettings(max_classes=3)))
    assert len(classes_of(bounded)) == 3
    assert not classes_of(build(fleet_of(**lengths), weights, Guide(CapabilitySettings(classes=False))))


@given(
    st.lists(
        st.tuples(st.sampled_from([None, 1024, 4096, 32768]), st.integers(1, 100)), min_size=1, max_size=8
    ),
    st.floats(0, 1),
)
def test_each_class_holds_just_those_that_fit_by_weights_in_range(
    cells: list[tuple[int | None, int]], long_share: float
) -> None:
    lengths = {f"c{number}": length for number, (length, _) in enumerate(cells)}
    weights = {f"c{number}": weight for number, (_, weight) in enumerate(cells)}
    classes = sorted({length for length in lengths.values() if length})
    mix = {length: (1 - long_share) / max(1, len(classes) - 1) for length in classes[:-1]}
    guide = Guide(mix={"m": {**mix, classes[-1]: long_share}} if classes else {})
    plan = build(fleet_of(**lengths), weights, guide)
    for shape, found in zip(plan.shape("m").classes, classes_of(plan), strict=True):
        fits = {name for name, length in lengths.items() if length is None or length >= shape.max_model_len}
        assert set(found) == fits
        assert all(1 <= weight <= weights[name] for name, weight in found.items())
