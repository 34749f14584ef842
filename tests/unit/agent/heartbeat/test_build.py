"""Readings to messages: presence, units, ages and bounds."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.readings import (
    CellEvent,
    Compute,
    EngineFacts,
    EngineReading,
    EngineState,
    EventKind,
    Gpu,
    HardwareReading,
    HardwareSource,
    Health,
    Model,
    PathMethod,
    PathReading,
    SourceReading,
    Status,
    Totals,
    Work,
)
from headrace_agent.heartbeat.build import (
    MAX_GPUS,
    MAX_MODELS,
    CellReading,
    Identity,
    build_event,
    build_goodbye,
    build_hello,
    build_telemetry,
)
from headrace_agent.settings import CellSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import CELL_SIGNALS

NOW = 1000.0
CELL = CellSettings(id="c1", url="http://127.0.0.1:8000", labels={"rack": "r7"})
IDENTITY = Identity("host-1", "berlin", "0.1.0", 17)


def beat(engine: EngineReading, hardware: HardwareReading | None = None, now: float = NOW) -> pb.CellBeat:
    reading = CellReading(CELL, engine, hardware or HardwareReading())
    (cell,) = build_telemetry([reading], [], now).cells
    return cell


def test_what_was_not_measured_is_absent() -> None:
    cell = beat(EngineReading(EngineState.LOADING))
    assert not cell.signals.ListFields()
    assert not cell.HasField("in_flight")
    assert not cell.HasField("requests")
    assert not cell.HasField("hardware")
    assert not cell.sources[0].HasField("age_ms")
    assert cell.hardware_source == pb.HARDWARE_SOURCE_NONE


def test_a_measured_zero_is_present() -> None:
    cell = beat(
        EngineReading(
            EngineState.SERVING,
            signals={"queue_depth": 0.0},
            in_flight=0,
            totals=Totals(ok=0),
            source=SourceReading("engine", Status.OK, NOW),
        ),
        HardwareReading(HardwareSource.DCGM, {"gpu_util": 0.0}, Health(last_xid=0)),
    )
    assert cell.signals.HasField("queue_depth")
    assert cell.signals.HasField("gpu_util")
    assert cell.HasField("in_flight")
    assert cell.requests.HasField("ok")
    assert not cell.requests.HasField("client_errors")
    assert cell.hardware.HasField("last_xid")
    assert cell.sources[0].HasField("age_ms")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1])
@pytest.mark.parametrize("name", CELL_SIGNALS)
def test_what_cannot_be_true_is_absent(name: str, value: float) -> None:
    cell = beat(
        EngineReading(EngineState.SERVING, signals={name: value}),
        HardwareReading(HardwareSource.NVML, {name: value}),
    )
    assert not cell.signals.ListFields()


def test_a_fraction_above_one_is_absent_and_a_rounded_one_is_kept() -> None:
    """A controller refuses the whole beat for a wrong unit; the node's other cells must not pay for it."""
    assert not beat(EngineReading(EngineState.SERVING, signals={"kv_fill": 87.0})).signals.HasField("kv_fill")
    assert beat(EngineReading(EngineState.SERVING, signals={"kv_fill": 1.0000001})).signals.HasField(
        "kv_fill"
    )
    assert beat(EngineReading(EngineState.SERVING, signals={"queue_depth": 87.0})).signals.queue_depth == 87.0


def test_an_engine_cannot_speak_for_the_gpu_nor_for_unknown_signals() -> None:
    cell = beat(
        EngineReading(EngineState.SERVING, signals={"gpu_util": 0.5, "rtt_ms": 3.0, "nonsense": 1.0}),
        HardwareReading(HardwareSource.DCGM, {"queue_depth": 3.0}),
    )
    assert not cell.signals.ListFields()


def test_all_eight_signals_pass_through() -> None:
    values = {name: (i + 1) / 10 for i, name in enumerate(CELL_SIGNALS)}
    cell = beat(EngineReading(EngineState.SERVING, signals=values), HardwareReading(signals=values))
    assert {field.name: value for field, value in cell.signals.ListFields()} == values


def test_serving_time_counts_only_while_serving() -> None:
    assert beat(EngineReading(EngineState.SERVING, serving_since=NOW - 2.5)).serving_ms == 2500
    assert beat(EngineReading(EngineState.SERVING, serving_since=0.0)).serving_ms == 1_000_000
    assert beat(EngineReading(EngineState.SERVING)).serving_ms == 0
    assert beat(EngineReading(EngineState.DOWN, serving_since=NOW - 2.5)).serving_ms == 0


def test_ages_are_milliseconds_and_never_negative() -> None:
    def age(read_at: float) -> int:
        source = SourceReading("dcgm", Status.STALE, read_at, "stands still")
        return beat(EngineReading(EngineState.SERVING), HardwareReading(sources=(source,))).sources[1].age_ms

    assert age(NOW - 0.25) == 250
    assert age(NOW + 5) == 0
    assert age(NOW - 1e9) == 2**32 - 1
    assert age(-math.inf) == 2**32 - 1


def test_every_state_status_source_and_kind_has_its_own_word_on_the_wire() -> None:
    states = {beat(EngineReading(each)).engine_state for each in EngineState}
    assert states == set(pb.EngineState.values()) - {0}
    statuses = {
        beat(EngineReading(EngineState.SERVING, source=SourceReading("e", each))).sources[0].status
        for each in Status
    }
    assert statuses == set(pb.SourceStatus.values()) - {0}
    sources = {
        beat(EngineReading(EngineState.SERVING), HardwareReading(each)).hardware_source
        for each in HardwareSource
    }
    assert sources == set(pb.HardwareSource.values()) - {0}
    kinds = {build_event(CellEvent("c1", each, ""), 1).kind for each in EventKind}
    assert kinds == set(pb.CellEventKind.values()) - {0}
    methods = {
        build_telemetry([], [PathReading("g", method=each)], NOW).paths[0].method for each in PathMethod
    }
    assert methods == set(pb.PathMethod.values()) - {0}


def test_health_keeps_a_margin_below_zero_and_drops_what_is_no_number() -> None:
    health = Health(
        temperature_c=math.nan, thermal_margin_c=-3.0, power_w=-1.0, ecc_correctable=-1, gpu_lost=True
    )
    sent = beat(EngineReading(EngineState.SERVING), HardwareReading(health=health)).hardware
    assert sent == pb.HardwareHealth(thermal_margin_c=-3.0, gpu_lost=True)


def test_paths_carry_presence_and_age() -> None:
    dead = PathReading("g1", loss=1.0, measured_at=NOW - 1)
    live = PathReading("g2", 12.5, 0.0, 0.0, PathMethod.TCP_CONNECT, NOW - 0.1)
    sent = build_telemetry([], [dead, live, PathReading("g3", rtt_ms=math.nan, loss=7.0)], NOW).paths
    assert not sent[0].HasField("rtt_ms")
    assert (sent[0].loss, sent[0].age_ms) == (1.0, 1000)
    assert (sent[1].rtt_ms, sent[1].HasField("jitter_ms"), sent[1].method) == (
        12.5,
        True,
        pb.PATH_METHOD_TCP_CONNECT,
    )
    assert [field.name for field, _ in sent[2].ListFields()] == ["gateway", "method"]


def test_hello_carries_every_fact() -> None:
    facts = EngineFacts("vllm", "0.32.0", (Model("llama", 4096), Model("lora-a", None, "llama")), "/health")
    hardware = HardwareReading(gpus=(Gpu("GPU-1", "H200", 143_771), Gpu("GPU-2")))
    hello = build_hello(
        IDENTITY, [CellReading(CELL, EngineReading(EngineState.SERVING, facts=facts), hardware)]
    )
    assert (hello.node, hello.site, hello.agent_version, hello.incarnation) == (
        "host-1",
        "berlin",
        "0.1.0",
        17,
    )
    (cell,) = hello.cells
    assert (cell.cell_id, cell.address.host, cell.address.port) == ("c1", "127.0.0.1", 8000)
    assert (cell.engine_kind, cell.engine_version, dict(cell.labels)) == ("vllm", "0.32.0", {"rack": "r7"})
    assert (cell.health_path, cell.tls) == ("/health", False)
    assert cell.models[0] == pb.ModelFacts(id="llama", max_model_len=4096)
    assert cell.models[1] == pb.ModelFacts(id="lora-a", base_model="llama")
    assert list(cell.gpus) == [
        pb.GpuFacts(uuid="GPU-1", name="H200", memory_mib=143_771),
        pb.GpuFacts(uuid="GPU-2"),
    ]


def test_an_https_engine_is_told_as_such() -> None:
    secure = CellSettings(id="c1", url="https://127.0.0.1:8443")
    reading = CellReading(secure, EngineReading(EngineState.LOADING), HardwareReading())
    (cell,) = build_hello(IDENTITY, [reading]).cells
    assert (cell.tls, cell.health_path, cell.address.port) == (True, "", 8443)


def test_hello_stays_within_what_controllers_take() -> None:
    facts = EngineFacts(
        models=(Model("m" * 2000), Model(""), *(Model(f"m{i}") for i in range(MAX_MODELS + 5)))
    )
    hardware = HardwareReading(gpus=tuple(Gpu(f"GPU-{i}") for i in range(MAX_GPUS + 5)))
    hello = build_hello(
        IDENTITY, [CellReading(CELL, EngineReading(EngineState.SERVING, facts=facts), hardware)]
    )
    assert [model.id for model in hello.cells[0].models] == [f"m{i}" for i in range(MAX_MODELS)]
    assert len(hello.cells[0].gpus) == MAX_GPUS


def test_half_a_surrogate_pair_cannot_break_a_message() -> None:
    """JSON may hold one; protobuf refuses to carry it."""
    facts = EngineFacts(kind="\ud800", models=(Model("a\udfffb"),))
    hello = build_hello(
        IDENTITY, [CellReading(CELL, EngineReading(EngineState.SERVING, facts=facts), HardwareReading())]
    )
    assert hello.cells[0].models[0].id == "a?b"
    assert build_event(CellEvent("c1", EventKind.ENGINE_DOWN, "\ud800" * 5000), 1).cause == "?" * 512


def test_event_and_goodbye() -> None:
    event = build_event(CellEvent("c1", EventKind.XID, "XID 79", 79), 5)
    assert event == pb.CellEvent(
        event_id=5, cell_id="c1", kind=pb.CELL_EVENT_KIND_XID, cause="XID 79", xid=79
    )
    assert not build_event(CellEvent("c1", EventKind.ENGINE_DOWN, "x"), 6).HasField("xid")
    assert build_goodbye(True, 30.0, "stopped") == pb.Goodbye(planned=True, grace_ms=30_000, reason="stopped")


counts = st.none() | st.integers()
figures = st.none() | st.floats()
healths = st.builds(
    Health,
    **{
        field.name: st.booleans()
        if field.name == "gpu_lost"
        else counts
        if "int" in str(field.type)
        else figures
        for field in dataclasses.fields(Health)
    },
)


@given(
    signals=st.dictionaries(st.sampled_from(CELL_SIGNALS), st.floats()),
    in_flight=counts,
    totals=st.builds(Totals, counts, counts, counts, counts),
    health=healths,
    read_at=figures,
    since=figures,
    detail=st.text(st.characters()),
)
def test_no_reading_can_break_a_beat(
    signals: dict[str, float],
    in_flight: int | None,
    totals: Totals,
    health: Health,
    read_at: float | None,
    since: float | None,
    detail: str,
) -> None:
    """Whatever a source claims, the beat is built, serialises, and holds only finite figures of 0 or more."""
    source = SourceReading("engine", Status.OK, read_at, detail)
    engine = EngineReading(EngineState.SERVING, signals, in_flight, totals, since, source=source)
    cell = beat(engine, HardwareReading(HardwareSource.DCGM, signals, health))
    assert pb.CellBeat.FromString(cell.SerializeToString()) == cell
    for _, value in cell.signals.ListFields():
        assert math.isfinite(value)
        assert value >= 0
    for _, value in cell.hardware.ListFields():
        assert math.isfinite(value)


def test_row_remapping_is_sent_as_it_is_and_absent_where_it_is_not_known() -> None:
    known = HardwareReading(health=Health(remap_pending=True, remap_failed=False))
    sent = beat(EngineReading(EngineState.SERVING), known).hardware
    assert (sent.remap_pending, sent.remap_failed, sent.HasField("remap_failed")) == (True, False, True)
    unknown = beat(EngineReading(EngineState.SERVING), HardwareReading(health=Health())).hardware
    assert not unknown.HasField("remap_failed")


def test_work_is_told_with_what_measures_the_time_for_it() -> None:
    cell = beat(
        EngineReading(EngineState.SERVING, work=Work(900, 300, 0)),
        HardwareReading(HardwareSource.DCGM, {"compute_active": 0.5}, compute=Compute.TENSOR),
    )
    work = cell.work
    assert (work.prompt_tokens, work.cached_tokens, work.generated_tokens) == (900, 300, 0)
    assert work.HasField("generated_tokens")
    assert cell.compute_measure == pb.COMPUTE_MEASURE_TENSOR
    nothing = beat(EngineReading(EngineState.SERVING), HardwareReading(HardwareSource.DCGM))
    assert not nothing.HasField("work")
    assert nothing.compute_measure == pb.COMPUTE_MEASURE_UNSPECIFIED
