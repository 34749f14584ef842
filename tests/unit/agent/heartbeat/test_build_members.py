"""A member's messages: whatever its collectors say, a controller takes what is built of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_agent.collectors.readings import (
    Gpu,
    HardwareReading,
    HardwareSource,
    Health,
    SourceReading,
    Status,
)
from headrace_agent.heartbeat.build import Identity, MemberReading, build_hello, build_telemetry
from headrace_controller.ingest.figures import check_telemetry
from headrace_controller.ingest.validation import check_hello, check_member
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.signals import GPU_SIGNALS, NAMES

NUMBER = st.none() | st.floats() | st.integers(-(2**70), 2**70).map(float)
COUNT = st.none() | st.integers(-(2**70), 2**70)
TEXT = st.sampled_from(["", "GPU-1", "x" * 2000, "half a pair \ud800"]) | st.text(max_size=8)
HEALTH = st.builds(
    Health,
    temperature_c=NUMBER,
    thermal_margin_c=NUMBER,
    power_w=NUMBER,
    power_limit_w=NUMBER,
    clock_event_reasons=COUNT,
    pcie_replays=COUNT,
    ecc_correctable=COUNT,
    ecc_uncorrectable=COUNT,
    remapped_rows=COUNT,
    last_xid=COUNT,
    gpu_lost=st.booleans(),
)
SOURCE = st.builds(SourceReading, TEXT, st.sampled_from(Status), st.none() | st.floats(), TEXT)
READING = st.builds(
    HardwareReading,
    source=st.sampled_from(HardwareSource),
    signals=st.dictionaries(st.sampled_from(NAMES), st.floats()),
    health=st.none() | HEALTH,
    gpus=st.lists(st.builds(Gpu, TEXT, TEXT, COUNT), max_size=4).map(lambda few: tuple(few) * 20),
    sources=st.lists(SOURCE, max_size=3).map(tuple),
)


@settings(deadline=None)
@given(READING)
def test_a_controller_takes_whatever_is_built(reading: HardwareReading) -> None:
    member = MemberReading("far-1", reading)
    hello = build_hello(Identity("host-1", "s", "0", 1), [], [member])
    told = build_telemetry([], [], 100.0, [member])
    assert check_hello(hello) is None
    assert check_member(hello.members[0]) is None
    assert check_telemetry(pb.Telemetry.FromString(told.SerializeToString())) is None


@settings(deadline=None)
@given(READING)
def test_a_member_never_tells_a_signal_that_is_none_of_a_gpu(reading: HardwareReading) -> None:
    (beat,) = build_telemetry([], [], 100.0, [MemberReading("far-1", reading)]).members
    assert {field.name for field, _ in beat.signals.ListFields()} <= set(GPU_SIGNALS)


def test_a_figure_that_was_not_measured_is_absent() -> None:
    (beat,) = build_telemetry([], [], 100.0, [MemberReading("far-1", HardwareReading())]).members
    assert list(beat.signals.ListFields()) == []
    assert not beat.HasField("hardware")
    assert beat.hardware_source == pb.HARDWARE_SOURCE_NONE
