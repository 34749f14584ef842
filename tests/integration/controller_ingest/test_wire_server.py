"""The telemetry port's server against real gRPC clients, and against peers that mean ill."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
import trustme

from headrace_controller.ingest import service
from headrace_controller.wire import frames
from headrace_controller.wire import server as wire_server
from headrace_controller.wire.frames import ErrorCode
from headrace_controller.wire.limits import Limits
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryStub
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsSettings
from tests.integration.controller_ingest.test_stream import Server, down, hello, read
from tests.support.wire import HELLO, data, headers, split

STREAM = "/headrace.v1.CellTelemetry/Stream"
OPENING = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", STREAM),
    (":authority", "controller"),
    ("content-type", "application/grpc"),
)


class Raw:
    """A peer that says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None) -> Raw:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    async def rest(self) -> bytes:
        """All that comes until the server closes."""
        found = b""
        async with asyncio.timeout(30):
            try:
                while part := await self._reader.read(65536):
                    found += part
            except ConnectionError:
                pass  # A reset is an end, too: what came before it counts.
        return found

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


async def answered(port: int, name: str = "well") -> None:
    """A well-behaved agent is served."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = CellTelemetryStub(channel).Stream(timeout=60)
        await call.write(hello(name, cells=(f"{name}-c",)))
        assert (await read(call)).welcome.session
        await call.write(down(1, 1, f"{name}-c"))
        assert (await read(call)).ack.event_id == 1
        call.cancel()


def talk(port: int) -> tuple[int, grpc.StatusCode]:
    """What a client of blocking gRPC hears: the Ack of an event, and how the call ends."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = CellTelemetryStub(channel).Stream(iter([hello(), down(1, 7)]), timeout=60)
        answers = list(call)
        return answers[-1].ack.event_id, call.code()


async def test_a_blocking_client_is_served_to_the_end() -> None:
    async with Server() as server:
        assert await asyncio.to_thread(talk, server.port) == (7, grpc.StatusCode.OK)
        assert await server.heard.until("lost") == ["n1"]


async def test_many_calls_share_one_connection() -> None:
    async with (
        Server() as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub: Any = CellTelemetryStub(channel)
        calls = [stub.Stream(timeout=60) for _ in range(50)]
        for number, call in enumerate(calls):
            await call.write(hello(f"n{number}", cells=(f"c{number}",)))
        for call in calls:
            assert (await read(call)).welcome.session
        assert server.wire.connections == 1
        for number, call in enumerate(calls):
            await call.write(down(1, number + 1, f"c{number}"))
        assert [(await read(call)).ack.event_id for call in calls] == list(range(1, 51))
        for call in calls:
            call.cancel()


async def test_a_message_far_over_the_windows_passes_and_one_over_the_limit_does_not() -> None:
    async with (
        Server() as server,
        grpc.aio.insecure_channel(
            f"127.0.0.1:{server.port}", options=[("grpc.max_send_message_length", -1)]
        ) as channel,
    ):
        call = CellTelemetryStub(channel).Stream(timeout=60)
        await call.write(hello())
        await read(call)
        big = down(1, 1)
        big.event.cause = "x" * (3 * 1024 * 1024)
        await call.write(big)
        assert (await read(call)).ack.event_id == 1
        big.event.cause = "x" * (4 * 1024 * 1024)
        await call.write(big)
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in await call.details()


async def test_what_is_not_served_is_unimplemented() -> None:
    async with (
        Server() as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        unknown = channel.unary_unary("/headrace.v1.CellTelemetry/Other")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unknown(b"x", timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        call = CellTelemetryStub(channel).Stream(timeout=10, compression=grpc.Compression.Gzip)
        large = hello()
        large.hello.site = "s" * 4096
        await call.write(large)
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "gzip" in await call.details()


async def test_a_caller_without_a_hello_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HELLO_TIMEOUT_S", 0.1)
    async with (
        Server() as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = CellTelemetryStub(channel).Stream(timeout=60)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await call.details() == "no Hello within 0.1 s"


async def test_a_caller_that_says_nothing_and_leaves_is_refused() -> None:
    async with (
        Server() as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = CellTelemetryStub(channel).Stream(timeout=60)
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert server.rejected == ["no_hello"]


async def test_a_message_of_another_protocol_is_refused_and_counted() -> None:
    async with (
        Server() as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = channel.stream_stream(STREAM)(timeout=60)
        await call.write(b"\xff\xff\xff")
        assert await call.code() is grpc.StatusCode.INTERNAL
        assert server.rejected == ["unreadable"]


async def test_stopping_ends_streams_at_once_and_in_order() -> None:
    server = Server()
    async with (
        server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = CellTelemetryStub(channel).Stream(timeout=60)
        await call.write(hello())
        await read(call)
        async with asyncio.timeout(20):
            await server.wire.stop(0.05)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert await server.heard.until("lost") == ["n1"]
        assert server.wire.connections == 0
        with pytest.raises(ConnectionRefusedError):
            await Raw.connect(server.port)


async def test_a_peer_that_does_not_read_delays_no_stop() -> None:
    async with Server() as server:
        raw = await Raw.connect(server.port)
        raw.writer.write(HELLO)
        await server_has(server, 1)
        async with asyncio.timeout(20):
            await server.wire.stop(0.05)
        await raw.close()


async def server_has(server: Server, count: int) -> None:
    async with asyncio.timeout(30):
        while server.wire.connections != count:  # noqa: ASYNC110 (there is nothing to wait for)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", ErrorCode.PROTOCOL_ERROR),
        (HELLO + b"\xff" * 64, ErrorCode.FRAME_SIZE_ERROR),
        (HELLO + frames.frame(frames.HEADERS, 4, 1, b"\x80"), ErrorCode.COMPRESSION_ERROR),
    ],
    ids=["http/1", "noise", "header fields"],
)
async def test_what_is_no_grpc_is_cut_off_and_others_are_served(said: bytes, code: ErrorCode) -> None:
    async with Server() as server:
        raw = await Raw.connect(server.port)
        raw.writer.write(said)
        *_, last = split(await raw.rest())
        assert (last.kind, int.from_bytes(last.payload[4:8], "big")) == (frames.GOAWAY, code)
        await raw.close()
        await answered(server.port)


async def test_a_flood_of_messages_leaves_others_their_turn() -> None:
    async with Server() as server:
        raw = await Raw.connect(server.port)
        first = hello("flood").SerializeToString()
        raw.writer.write(HELLO + headers(1, OPENING) + data(1, first))
        await server.heard.until("hello")
        beats = data(1, *[pb.AgentMessage().SerializeToString()] * 3000)
        stop = asyncio.Event()

        async def flood() -> None:
            while not stop.is_set():
                raw.writer.write(beats)
                await raw.writer.drain()

        task = asyncio.create_task(flood(), name="flood")
        try:
            await answered(server.port)
            assert len(await server.heard.until("alive", 3000)) >= 3000
        finally:
            stop.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await raw.close()


async def write_on(raw: Raw, what: bytes) -> None:
    """Write until the other side has had enough."""
    async with asyncio.timeout(60):
        while True:
            raw.writer.write(what)
            await raw.writer.drain()
            await asyncio.sleep(0)


async def test_a_peer_that_asks_and_never_reads_is_cut_off() -> None:
    async with Server(limits=Limits(unread=50_000, overhead=10**9)) as server:
        raw = await Raw.connect(server.port)
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        raw.writer.write(HELLO)
        pings = frames.frame(frames.PING, 0, 0, b"12345678") * 4000
        with pytest.raises(ConnectionError):
            await write_on(raw, pings)
        await raw.close()
        await server_has(server, 0)
        await answered(server.port)


async def test_more_connections_than_allowed_are_not_taken() -> None:
    async with Server(limits=Limits(connections=2)) as server:
        first, second = await Raw.connect(server.port), await Raw.connect(server.port)
        await server_has(server, 2)
        third = await Raw.connect(server.port)
        assert await third.rest() == b""
        for each in (first, third):
            await each.close()
        await server_has(server, 1)
        await answered(server.port)
        await second.close()


async def test_a_connection_that_never_begins_ends() -> None:
    async with Server(limits=Limits(handshake_s=0.1)) as server:
        raw = await Raw.connect(server.port)
        *_, last = split(await raw.rest())
        assert last.kind == frames.SETTINGS
        await raw.close()


async def test_a_process_without_files_accepts_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_server, "ACCEPT_AGAIN_S", 0.05)
    async with Server() as server:
        exhausted = Mock(accept=Mock(side_effect=OSError(errno.EMFILE, "too many open files")))
        server.wire._accept(exhausted)
        exhausted.accept.assert_called_once()
        await answered(server.port)


class Secured:
    """TLS files of a server and of a client, one authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "ca.pem")
        pair = self.authority.issue_cert("127.0.0.1")
        pair.private_key_pem.write_to_path(folder / "key.pem")
        pair.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        self.open = TlsSettings(cert=folder / "cert.pem", key=folder / "key.pem")
        self.mutual = TlsSettings(ca=folder / "ca.pem", cert=folder / "cert.pem", key=folder / "key.pem")

    def client(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        context.set_alpn_protocols(list(protocols))
        return context


async def test_tls_without_http_2_is_not_served(tmp_path: Path) -> None:
    files = Secured(tmp_path)
    async with Server(files.open) as server:
        other = await Raw.connect(server.port, files.client("http/1.1"))
        assert await other.rest() == b""
        await other.close()
        raw = await Raw.connect(server.port, files.client("h2"))
        raw.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert split(await raw.rest())[-1].kind == frames.GOAWAY
        await raw.close()


async def test_a_peer_that_speaks_no_tls_or_none_for_long_is_not_served(tmp_path: Path) -> None:
    files = Secured(tmp_path)
    async with Server(files.open, Limits(handshake_s=0.2)) as server:
        plain, slow = await Raw.connect(server.port), await Raw.connect(server.port)
        plain.writer.write(HELLO)
        for each in (plain, slow):
            assert frames.PREFACE not in await each.rest()
            await each.close()
        assert server.wire.connections == 0


async def test_mutual_tls_wants_a_certificate(tmp_path: Path) -> None:
    files = Secured(tmp_path)
    trusted = grpc.ssl_channel_credentials(files.authority.cert_pem.bytes())
    async with (
        Server(files.mutual) as server,
        grpc.aio.secure_channel(f"127.0.0.1:{server.port}", trusted) as channel,
    ):
        call = CellTelemetryStub(channel).Stream(timeout=60)
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert server.heard.calls == []


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with Server() as server:
        other = Server()
        with pytest.raises(OSError, match="in use"):
            await other.wire.start(HostPort("127.0.0.1", server.port))


async def test_a_wildcard_is_both_families() -> None:
    server = Server()
    port = await server.wire.start(HostPort("0.0.0.0", 0))
    try:
        for host in ("127.0.0.1", "::1"):
            if host == "::1" and not _has_ipv6():
                continue
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            await writer.wait_closed()
    finally:
        await server.wire.stop(0.0)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
