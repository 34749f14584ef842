"""The agents' stream over real gRPC on loopback: what is taken, what is refused, and what survives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.service import OUTGOING, TelemetryService
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.server import WireServer
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryStub
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.tls import ServerIdentity, TlsSettings, channel_credentials
from tests.support.clock import FakeClock


class Heard:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.changed = asyncio.Event()

    def _note(self, kind: str, what: Any) -> None:
        self.calls.append((kind, what))
        self.changed.set()

    def hello(self, hello: pb.Hello, now: float) -> None:
        self._note("hello", [cell.cell_id for cell in hello.cells])

    def telemetry(self, node: str, telemetry: pb.Telemetry, now: float, *_: object) -> None:
        self._note("telemetry", [cell.cell_id for cell in telemetry.cells])

    def alive(self, node: str, now: float) -> None:
        self._note("alive", node)

    def event(self, node: str, event: pb.CellEvent, now: float) -> None:
        self._note("event", event.event_id)

    def goodbye(self, node: str, goodbye: pb.Goodbye, now: float) -> None:
        self._note("goodbye", goodbye.planned)

    def stream_lost(self, node: str, now: float) -> None:
        self._note("lost", node)

    async def until(self, kind: str, count: int = 1) -> list[Any]:
        """Wait until `kind` was heard `count` times."""
        async with asyncio.timeout(30):
            while len(found := [what for each, what in self.calls if each == kind]) < count:
                self.changed.clear()
                await self.changed.wait()
        return found


class Server:
    """The service on a port of its own."""

    def __init__(self, tls: TlsSettings | None = None, limits: Limits | None = None) -> None:
        self.heard = Heard()
        self.rejected: list[str] = []
        self.intake = Intake(
            self.heard,
            lambda: pb.Welcome(telemetry_interval_ms=500, liveness_interval_ms=100),
            on_rejection=self.rejected.append,
        )
        self.service = TelemetryService(self.intake, FakeClock(), check_identity=tls is not None)
        self.identity = ServerIdentity(tls, "tls") if tls is not None else None
        context = self.identity.context if self.identity is not None else None
        self.wire = WireServer(self.service.methods(), SystemClock(), context, limits)
        self.port = 0

    async def __aenter__(self) -> Server:
        self.port = await self.wire.start(HostPort("127.0.0.1", 0))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.wire.stop(0.1)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as started:
        yield started


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield CellTelemetryStub(channel)


def hello(
    node: str = "n1", incarnation: int = 1, cells: tuple[str, ...] = ("c1",), host: str = "127.0.0.1"
) -> pb.AgentMessage:
    facts = [pb.CellFacts(cell_id=c, address=pb.Address(host=host, port=8000)) for c in cells]
    return pb.AgentMessage(hello=pb.Hello(node=node, site="a", incarnation=incarnation, cells=facts))


def beat(seq: int, *cells: str, **signals: float) -> pb.AgentMessage:
    beats = [pb.CellBeat(cell_id=cell, signals=pb.Signals(**signals)) for cell in cells]
    return pb.AgentMessage(telemetry=pb.Telemetry(seq=seq, cells=beats))


def down(seq: int, event_id: int, cell: str = "c1") -> pb.AgentMessage:
    event = pb.CellEvent(seq=seq, event_id=event_id, cell_id=cell, kind=pb.CELL_EVENT_KIND_ENGINE_DOWN)
    return pb.AgentMessage(event=event)


async def read(call: Any) -> pb.ControllerMessage:
    async with asyncio.timeout(30):
        message = await call.read()
    assert isinstance(message, pb.ControllerMessage)
    return message


async def test_hello_beats_events_and_goodbye_reach_the_sink(server: Server, stub: Any) -> None:
    call = stub.Stream(timeout=60)
    await call.write(hello())
    assert (await read(call)).welcome.telemetry_interval_ms == 500
    await call.write(beat(1, "c1", kv_fill=0.5))
    await call.write(pb.AgentMessage(liveness=pb.Liveness(seq=2)))
    await call.write(down(3, 1))
    assert (await read(call)).ack.event_id == 1
    await call.write(pb.AgentMessage(goodbye=pb.Goodbye(seq=4, planned=True)))
    assert await server.heard.until("goodbye") == [True]
    await call.done_writing()
    await server.heard.until("lost")
    assert [kind for kind, _ in server.heard.calls if kind != "alive"] == [
        "hello",
        "telemetry",
        "event",
        "goodbye",
        "lost",
    ]
    assert len(await server.heard.until("alive", 4)) == 4
    assert server.rejected == []


async def test_what_fails_validation_changes_nothing_and_still_counts_as_life(
    server: Server, stub: Any
) -> None:
    call = stub.Stream(timeout=60)
    await call.write(hello())
    await read(call)
    await call.write(beat(1, "c1", kv_fill=float("nan")))
    await call.write(beat(1, "c1", kv_fill=0.1))
    await call.write(beat(1, "c1", kv_fill=0.1))
    await call.write(pb.AgentMessage())
    await server.heard.until("alive", 4)
    assert server.rejected == ["bad_number", "replayed", "replayed", "empty"]
    assert "telemetry" not in [kind for kind, _ in server.heard.calls]
    call.cancel()


async def test_a_node_speaks_for_its_own_cells_only(server: Server, stub: Any) -> None:
    call = stub.Stream(timeout=60)
    await call.write(hello(cells=("c1",)))
    await read(call)
    await call.write(beat(1, "c1", "c9", kv_fill=0.1))
    assert await server.heard.until("telemetry") == [["c1"]]
    await call.write(down(2, 1, "c9"))
    await server.heard.until("alive", 2)
    assert server.rejected == ["foreign_cell", "foreign_cell"]
    assert "event" not in [kind for kind, _ in server.heard.calls]
    call.cancel()


async def test_a_cell_of_another_live_node_is_refused_in_the_welcome(server: Server, stub: Any) -> None:
    first, second = stub.Stream(timeout=60), stub.Stream(timeout=60)
    await first.write(hello("n1"))
    await read(first)
    await second.write(hello("n2", cells=("c1", "c2")))
    refused = (await read(second)).welcome.refused
    assert [(each.cell_id, "held by node n1" in each.reason) for each in refused] == [("c1", True)]
    assert await server.heard.until("hello", 2) == [["c1"], ["c2"]]
    first.cancel()
    second.cancel()


async def test_a_cell_whose_address_gateways_cannot_use_is_refused_alone(server: Server, stub: Any) -> None:
    call = stub.Stream(timeout=60)
    await call.write(hello(host="engine.local"))
    welcome = (await read(call)).welcome
    assert "set the cell's advertise" in welcome.refused[0].reason
    call.cancel()


@pytest.mark.parametrize(
    "first",
    [beat(1, "c1"), hello(node=""), hello(incarnation=0), pb.AgentMessage()],
    ids=["beat", "name", "start", "empty"],
)
async def test_a_stream_that_begins_wrong_is_refused_with_the_reason(
    server: Server, stub: Any, first: pb.AgentMessage
) -> None:
    call = stub.Stream(timeout=60)
    await call.write(first)
    assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert await call.details()
    assert len(server.rejected) == 1
    assert server.heard.calls == []


async def test_an_older_agent_of_the_same_node_is_refused(server: Server, stub: Any) -> None:
    new, old = stub.Stream(timeout=60), stub.Stream(timeout=60)
    await new.write(hello(incarnation=2))
    await read(new)
    await old.write(hello(incarnation=1))
    assert await old.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "stop one of the two" in await old.details()
    new.cancel()


async def test_events_are_taken_once_over_a_reconnect(server: Server, stub: Any) -> None:
    call = stub.Stream(timeout=60)
    await call.write(hello())
    await call.write(down(1, 1))
    await server.heard.until("event")
    call.cancel()
    await server.heard.until("lost")
    again = stub.Stream(timeout=60)
    await again.write(hello())
    await read(again)
    await again.write(down(1, 1))
    assert (await read(again)).ack.event_id == 1
    await again.write(down(2, 2))
    assert await server.heard.until("event", 2) == [1, 2]
    again.cancel()


async def test_directives_reach_a_connected_node_only(server: Server, stub: Any) -> None:
    message = pb.ControllerMessage(directive=pb.Directive(drain=pb.Drain(cell_id="c1")))
    assert not server.service.send("n1", message)
    call = stub.Stream(timeout=60)
    await call.write(hello())
    await read(call)
    assert server.service.send("n1", message)
    assert (await read(call)).directive.drain.cell_id == "c1"
    call.cancel()
    await server.heard.until("lost")
    assert not server.service.send("n1", message)


@pytest.mark.parametrize(("name", "code"), [("n1", None), ("n2", grpc.StatusCode.FAILED_PRECONDITION)])
async def test_with_mutual_tls_a_node_is_who_its_certificate_says(
    tmp_path: Path, name: str, code: Any
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls: dict[str, TlsSettings] = {}
    for who, identity in (("server", "127.0.0.1"), ("agent", "n1")):
        pair = authority.issue_cert(identity, common_name=identity)
        pair.private_key_pem.write_to_path(tmp_path / f"{who}.key")
        pair.cert_chain_pems[0].write_to_path(tmp_path / f"{who}.pem")
        tls[who] = TlsSettings(
            ca=tmp_path / "ca.pem", cert=tmp_path / f"{who}.pem", key=tmp_path / f"{who}.key"
        )
    async with (
        Server(tls["server"]) as server,
        grpc.aio.secure_channel(
            f"127.0.0.1:{server.port}", channel_credentials(tls["agent"], "tls")
        ) as channel,
    ):
        call = CellTelemetryStub(channel).Stream(timeout=60)
        await call.write(hello(name))
        if code is None:
            assert (await read(call)).welcome.session
            call.cancel()
        else:
            assert await call.code() is code
            assert server.rejected == ["wrong_identity"]


async def test_an_agent_that_reads_no_answers_is_still_heard(server: Server, stub: Any) -> None:
    call = stub.Stream(timeout=60)
    await call.write(hello())
    for number in range(1, OUTGOING * 3):
        await call.write(hello())
        await call.write(pb.AgentMessage(liveness=pb.Liveness(seq=number)))
    await server.heard.until("alive", OUTGOING * 6 - 2)
    assert server.rejected == []
    call.cancel()
    await server.heard.until("lost")


async def test_a_sink_that_fails_leaves_no_session(server: Server, stub: Any, monkeypatch: Any) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(server.heard, "hello", fail)
    call = stub.Stream(timeout=60)
    await call.write(hello())
    assert await call.code() is grpc.StatusCode.UNKNOWN
    assert server.intake.sessions.live == ()


async def test_two_hosts_under_one_name_are_told_apart(server: Server, stub: Any) -> None:
    """A copied settings file must not end the cells of the host that it was copied from."""
    first, second = stub.Stream(timeout=60), stub.Stream(timeout=60)
    await first.write(hello("n1", 1, ("c1",)))
    await read(first)
    await second.write(hello("n1", 2, ("c2",)))
    assert await second.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "give each host its own" in await second.details()
    assert await server.heard.until("hello") == [["c1"]]
    first.cancel()


async def test_a_stream_that_is_replaced_ends_although_it_says_nothing_more(stub: Any) -> None:
    """Else an agent that reconnects without a word of goodbye leaves one behind each time."""
    older = stub.Stream(timeout=60)
    await older.write(hello())
    await read(older)
    newer = stub.Stream(timeout=60)
    await newer.write(hello())
    await read(newer)
    async with asyncio.timeout(30):
        assert await older.code() is grpc.StatusCode.ABORTED
    await newer.write(down(1, 1))
    assert (await read(newer)).ack.event_id == 1
    newer.cancel()
