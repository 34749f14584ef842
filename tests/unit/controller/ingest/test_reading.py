"""A beat is read as a plain reader reads it, and is in order where plain rules find nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given

from headrace_controller.ingest.figures import check_telemetry
from headrace_controller.ingest.reading import (
    ENGINE_AGE_MS,
    HARDWARE_AGE_MS,
    HEALTH_AT,
    HEALTH_KINDS,
    IN_FLIGHT,
    SERVING_MS,
    SIGNALS_AT,
    TOTAL_KINDS,
    WORK,
    read_beat,
)
from headrace_controller.ingest.validation import MAX_CELLS, MAX_SOURCES
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS, SIGNALS
from tests.unit.controller.ingest.any_beats import DOUBLES, any_beats

FRACTIONS = {each.name for each in SIGNALS if each.unit == "fraction"}


def plain(message: Any, names: tuple[str, ...]) -> list[float]:
    """Each figure as it stands; NaN where it is absent or not finite."""
    values = [float(getattr(message, name)) if message.HasField(name) else math.nan for name in names]
    return [value if math.isfinite(value) else math.nan for value in values]


def age_of(beat: pb.CellBeat, name: str) -> tuple[float, bool]:
    for source in beat.sources:
        if source.name == name:
            age_ms = float(source.age_ms) if source.HasField("age_ms") else math.nan
            return age_ms, source.status == pb.SOURCE_STATUS_STALE
    return math.nan, False


def fault_of(telemetry: pb.Telemetry) -> str:
    """Why a beat is not in order, "" where it is: the rules, one after the other."""
    for beat in telemetry.cells:
        for name in CELL_SIGNALS:
            value = getattr(beat.signals, name)
            if not 0 <= value <= (1.001 if name in FRACTIONS else math.inf) or math.isinf(value):
                return "bad_unit" if math.isfinite(value) and value > 0 else "bad_number"
        if not all(math.isfinite(getattr(beat.hardware, name)) for name in DOUBLES):
            return "bad_number"
        if len(beat.sources) > MAX_SOURCES:
            return "too_long"
    for path in telemetry.paths:
        if not (0 <= path.rtt_ms < math.inf and 0 <= path.jitter_ms < math.inf):
            return "bad_number"
        if not 0 <= path.loss <= 1.001:
            return "bad_unit"
    ids = [beat.cell_id for beat in telemetry.cells]
    return "cell_twice" if len(set(ids)) < len(ids) else ""


@given(any_beats)
def test_a_beat_is_read_as_a_plain_reader_reads_it(telemetry: pb.Telemetry) -> None:
    found = read_beat(telemetry)
    assert found.ids == [beat.cell_id for beat in telemetry.cells]
    assert found.block.shape[0] == len(telemetry.cells)
    for at, beat in enumerate(telemetry.cells):
        row = found.block[at].tolist()
        source = beat.hardware_source if 0 <= beat.hardware_source <= 3 else 0
        engine, engine_stale = age_of(beat, "engine")
        wanted = {pb.HARDWARE_SOURCE_DCGM: "dcgm", pb.HARDWARE_SOURCE_NVML: "nvml"}.get(source)
        hardware, hardware_stale = age_of(beat, wanted) if wanted else (math.nan, False)
        assert row[SIGNALS_AT] == pytest.approx(plain(beat.signals, CELL_SIGNALS), nan_ok=True)
        assert row[HEALTH_AT] == pytest.approx(plain(beat.hardware, HEALTH_KINDS), nan_ok=True)
        told = [*plain(beat, ("in_flight",)), float(beat.serving_ms), engine, hardware]
        places = (IN_FLIGHT, SERVING_MS, ENGINE_AGE_MS, HARDWARE_AGE_MS)
        assert [row[place] for place in places] == pytest.approx(told, nan_ok=True)
        assert found.engine[at] == (beat.engine_state if 0 <= beat.engine_state <= 5 else 0)
        assert found.hardware[at] == source
        assert (found.engine_stale[at], found.hardware_stale[at]) == (engine_stale, hardware_stale)
        assert found.totals[at] == tuple(getattr(beat.requests, kind) for kind in TOTAL_KINDS)
        assert found.told[at] == beat.HasField("hardware")
        health = beat.hardware
        assert (found.lost[at], found.xids[at]) == (health.gpu_lost, min(health.last_xid, 1_000_000))


@given(any_beats)
def test_a_beat_is_in_order_where_no_rule_is_broken_and_the_first_that_is_broken_is_named(
    telemetry: pb.Telemetry,
) -> None:
    fault, rejection = fault_of(telemetry), check_telemetry(telemetry)
    assert (rejection.reason if rejection else "") == fault
    assert read_beat(telemetry).sound == (not fault)


def test_too_many_cells_paths_or_sources_and_a_cell_that_stands_twice_are_not_in_order() -> None:
    def sound(**fields: Any) -> bool:
        return read_beat(pb.Telemetry(**fields)).sound

    cells = [pb.CellBeat(cell_id=f"c{number}") for number in range(MAX_CELLS + 1)]
    paths = [pb.PathBeat(gateway="g")] * (MAX_CELLS + 1)
    sources = [pb.SourceBeat(name="s")] * (MAX_SOURCES + 1)
    assert sound(cells=cells[1:], paths=paths[1:])
    assert not sound(cells=cells)
    assert not sound(paths=paths)
    assert sound(cells=[pb.CellBeat(sources=sources[1:])])
    assert not sound(cells=[pb.CellBeat(sources=sources)])
    assert not sound(cells=[cells[0], cells[0]])


def test_members_are_not_read_and_so_always_looked_at() -> None:
    assert not read_beat(pb.Telemetry(members=[pb.MemberBeat(cell_id="c")])).sound


def test_some_of_the_cells_can_be_taken() -> None:
    cells = [pb.CellBeat(cell_id=name, in_flight=at, engine_state=at) for at, name in enumerate("abc")]  # type: ignore[arg-type]
    found = read_beat(pb.Telemetry(cells=cells)).take([0, 2])
    assert (found.ids, found.engine) == (["a", "c"], [0, 2])
    assert found.block[:, IN_FLIGHT].tolist() == [0.0, 2.0]
    assert found.sound


@pytest.mark.parametrize(
    ("measure", "work", "tokens"),
    [
        (pb.COMPUTE_MEASURE_TENSOR, {"prompt_tokens": 900, "generated_tokens": 30}, 930.0),
        (
            pb.COMPUTE_MEASURE_TENSOR,
            {"prompt_tokens": 900, "cached_tokens": 500, "generated_tokens": 0},
            400.0,
        ),
        # More found than asked for is no count to take away.
        (pb.COMPUTE_MEASURE_TENSOR, {"prompt_tokens": 9, "cached_tokens": 50, "generated_tokens": 7}, 7.0),
        (pb.COMPUTE_MEASURE_TENSOR, {"prompt_tokens": 0, "generated_tokens": 0}, 0.0),
        (pb.COMPUTE_MEASURE_TENSOR, {"prompt_tokens": 900}, math.nan),
        (pb.COMPUTE_MEASURE_TENSOR, {}, math.nan),
        (pb.COMPUTE_MEASURE_SM, {"prompt_tokens": 900, "generated_tokens": 30}, math.nan),
        (pb.COMPUTE_MEASURE_UNSPECIFIED, {"prompt_tokens": 900, "generated_tokens": 30}, math.nan),
        (17, {"prompt_tokens": 900, "generated_tokens": 30}, math.nan),
    ],
)
def test_work_is_what_was_computed_where_its_time_is_known(
    measure: Any, work: dict[str, int], tokens: float
) -> None:
    beat = pb.CellBeat(cell_id="a", compute_measure=measure, work=pb.WorkTotals(**work))
    found = read_beat(pb.Telemetry(cells=[beat]))
    assert found.block[0, WORK] == pytest.approx(tokens, nan_ok=True)
    assert found.sound
