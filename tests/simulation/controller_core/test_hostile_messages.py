"""Messages that no honest agent sends: none raises, and one that is refused changes nothing.

They go the real way, from the intake into the inventory and through a tick of every later stage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.sessions import Session
from headrace_controller.ingest.validation import Rejection
from headrace_controller.inventory.columns import Columns
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config
from tests.support.clock import FakeClock

SETTINGS = config.parse("gateways: [{id: gw, host: 127.0.0.1}]", ControllerSettings)
# A sign of life is one, whatever else is wrong with it; a cell that is not the node's is left out alone.
ALIVE = frozenset({"last_heard"})
IN_PART = frozenset({"foreign_cell"})

FLOATS = st.sampled_from([float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1.0, 1e308, 57.0])
TEXTS = st.sampled_from(["", "c1", "c2", "c9", "gw", "x" * 5000, "a\nb", "\0", "dcgm", "engine"])
EXTREMES: dict[int, Any] = {
    FieldDescriptor.TYPE_DOUBLE: FLOATS,
    FieldDescriptor.TYPE_UINT32: st.sampled_from([0, 1, 48, 2**31, 2**32 - 1]),
    FieldDescriptor.TYPE_UINT64: st.sampled_from([0, 1, 2**53 + 1, 2**63, 2**64 - 1]),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_ENUM: st.sampled_from([0, 1, 2, 3, 5, 8, 999, -7]),
}


class Outside:
    """Publishes to nobody and asks nobody."""

    def publish(self, plan: Any) -> None:
        return

    def ask_engine(self, *_: Any) -> None:
        return

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        return True


class Desk:
    """A controller with one node of two healthy, published cells."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.rejected: list[str] = []
        self.loop = ControlLoop(SETTINGS, self.clock, Metrics(), Outside(), None)
        self.intake = Intake(self.loop, pb.Welcome, on_rejection=self.rejected.append)
        self.seq = 0
        session = self.intake.open(hello(), local=True)
        assert isinstance(session, Session)
        self.session = session
        self.intake.greet(session, hello(), self.clock.now())
        for _ in range(10):
            self.take(pb.AgentMessage(telemetry=telemetry()))
            self.loop.tick(self.clock.advance(0.5))
        assert self.loop.published is not None

    def take(self, message: pb.AgentMessage) -> None:
        kind = message.WhichOneof("body")
        if kind not in (None, "hello"):
            self.seq += 1
            getattr(message, kind).seq = self.seq
        self.intake.take(self.session, message, self.clock.now())

    def state(self) -> dict[str, Any]:
        """All that the inventory holds, but signs of life."""
        fleet = self.loop.fleet
        arrays = {
            name: getattr(fleet, name)[: fleet.size].copy()
            for name in Columns.__annotations__
            if name not in ALIVE and isinstance(getattr(fleet, name, None), np.ndarray)
        }
        return arrays | {"cells": [fleet.facts_of(row) for row in fleet.rows().tolist()]}


def hello() -> pb.Hello:
    facts = [
        pb.CellFacts(
            cell_id=cell,
            address=pb.Address(host="127.0.0.1", port=8000 + number),
            models=[pb.ModelFacts(id="m", max_model_len=4096)],
            gpus=[pb.GpuFacts(uuid=f"GPU-{number}")],
            member_nodes=["n2"],
        )
        for number, cell in enumerate(("c1", "c2"))
    ]
    return pb.Hello(node="n1", site="s", incarnation=1, cells=facts)


def telemetry() -> pb.Telemetry:
    beats = [
        pb.CellBeat(
            cell_id=cell,
            engine_state=pb.ENGINE_STATE_SERVING,
            serving_ms=60_000,
            in_flight=2,
            signals=pb.Signals(queue_depth=1, kv_fill=0.3, compute_active=0.4, ttft_p95_s=0.2),
            sources=[pb.SourceBeat(name="engine", status=pb.SOURCE_STATUS_OK, age_ms=50)],
            requests=pb.RequestTotals(ok=100),
            hardware=pb.HardwareHealth(temperature_c=60, power_w=300),
            hardware_source=pb.HARDWARE_SOURCE_DCGM,
        )
        for cell in ("c1", "c2")
    ]
    return pb.Telemetry(cells=beats, paths=[pb.PathBeat(gateway="gw", rtt_ms=1.0, jitter_ms=0.1, loss=0)])


def honest() -> list[pb.AgentMessage]:
    down = pb.CellEvent(event_id=1, cell_id="c1", kind=pb.CELL_EVENT_KIND_XID, xid=13)
    return [
        pb.AgentMessage(hello=hello()),
        pb.AgentMessage(telemetry=telemetry()),
        pb.AgentMessage(liveness=pb.Liveness()),
        pb.AgentMessage(event=down),
        pb.AgentMessage(goodbye=pb.Goodbye(planned=True, grace_ms=1000)),
    ]


def spoil(message: Message, data: st.DataObject) -> None:
    """Set one field, somewhere in the message, to something extreme."""
    field = data.draw(st.sampled_from(tuple(message.DESCRIPTOR.fields)), label="field")
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(message, field.name)["k" * 2000] = "v"
        return
    repeated = field.is_repeated
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        held = getattr(message, field.name)
        if not repeated:
            spoil(held, data)
        elif held and data.draw(st.booleans(), label="in place"):
            spoil(held[data.draw(st.integers(0, len(held) - 1))], data)
        else:
            for _ in range(data.draw(st.sampled_from([1, 300]), label="more")):
                held.add()
            spoil(held[-1], data)
        return
    value = data.draw(EXTREMES[field.type], label=field.full_name)
    if repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def check(message: pb.AgentMessage) -> None:
    """Take it in, and tick through all stages; refused, it has changed nothing."""
    desk = Desk()
    before = desk.state()
    desk.rejected.clear()
    published = desk.loop.published
    kind = message.WhichOneof("body")
    desk.take(message)
    after = desk.state()
    if desk.rejected and not set(desk.rejected) <= IN_PART and kind != "hello":
        assert_same(before, after)
    for _ in range(3):
        desk.loop.tick(desk.clock.advance(0.1))
    desk.loop.book.check()
    assert published is not None


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert before.keys() == after.keys()
    for name, held in before.items():
        np.testing.assert_array_equal(after[name], held, err_msg=name)


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FUZZ
@given(data=st.data(), which=st.integers(0, 4), often=st.integers(1, 3))
def test_a_spoilt_message_raises_nothing_and_refused_changes_nothing(
    data: st.DataObject, which: int, often: int
) -> None:
    message = honest()[which]
    body = getattr(message, str(message.WhichOneof("body")))
    for _ in range(often):
        spoil(body, data)
    check(message)


@FUZZ
@given(which=st.integers(0, 4), at=st.integers(0, 400), byte=st.integers(0, 255), cut=st.booleans())
def test_a_message_with_a_wrong_byte_does_neither(which: int, at: int, byte: int, cut: bool) -> None:
    raw = bytearray(honest()[which].SerializeToString())
    place = at % len(raw)
    raw[place] = byte
    try:
        message = pb.AgentMessage.FromString(bytes(raw[: place + 1] if cut else raw))
    except DecodeError:
        return  # gRPC ends the stream
    check(message)


@FUZZ
@given(data=st.data())
def test_a_first_hello_that_is_spoilt_is_taken_or_refused_by_name(data: st.DataObject) -> None:
    desk, first = Desk(), hello()
    first.node = "n7"
    spoil(first, data)
    outcome = desk.intake.open(first, local=False)
    if isinstance(outcome, Rejection):
        assert outcome.reason
        assert outcome.detail
        return
    desk.intake.greet(outcome, first, desk.clock.now())
    desk.loop.tick(desk.clock.advance(0.1))
    desk.loop.book.check()
    assert set(desk.loop.fleet.node_cells("n1")) == {"c1", "c2"}, "another node's cells stay its own"
