"""The picker's gRPC service, asked as an Envoy asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc

from headrace_controller.picker import service as module
from headrace_controller.picker.candidates import Candidates
from headrace_controller.picker.ejections import FAILURES
from headrace_controller.picker.guards import WINDOW
from headrace_controller.picker.messages import ATTRIBUTES
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.requests import Ask, Outcome, Pick, Served
from headrace_controller.picker.service import GATEWAY_METADATA, Hooks, PickerService
from headrace_controller.settings import CapabilitySettings, PickerSettings
from headrace_controller.wire import frames
from headrace_controller.wire.call import Peer
from headrace_controller.wire.connection import Connection
from headrace_controller.wire.limits import Limits
from headrace_controller.wire.messages import Room
from headrace_shared.clock import SystemClock
from tests.support.certificates import server_and_client
from tests.support.gateway_port import GatewayPort
from tests.support.wire import OPENING, data, headers
from tests.unit.controller.picker.builders import GATEWAY, MODEL, line_up

CLOCK = SystemClock()


class Freshened(Picker):
    """The fleet's picture never grows old; `error` is raised instead of a pick where it is set, `late` after
    it."""

    error: Exception | None = None
    late: Exception | None = None

    def pick(self, gateway: str, ask: Ask, now: float) -> Pick:
        if self.error is not None:
            raise self.error
        self.candidates = {
            key: Candidates(each.lineup, now, each.rtt_s, each.penalty)
            for key, each in self.candidates.items()
        }
        pick = super().pick(gateway, ask, now)
        if self.late is not None:
            raise self.late
        return pick


class Served_:  # noqa: N801
    """A served picker, what it told, and how to ask it."""

    def __init__(self, **settings: Any) -> None:
        chosen = PickerSettings(enabled=True, **{"trickle": 0.0, **settings})
        self.picker = Freshened(chosen, CapabilitySettings(), np.random.default_rng(1))
        line_up(self.picker, "ab")
        self.outcomes: list[Outcome] = []
        self.served: list[Served] = []
        self.refused: list[str] = []
        hooks = Hooks(
            lambda outcome, _: self.outcomes.append(outcome), self.served.append, self.refused.append
        )
        self.service = PickerService(self.picker, CLOCK, chosen, [GATEWAY], hooks)
        self.stub: Any
        self.raw: Any

    def call(self, gateway: str = GATEWAY) -> Any:
        return self.stub.Process(metadata=((GATEWAY_METADATA, gateway),), timeout=60)


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Served_]:
    made = Served_(**settings)
    server = GatewayPort(more=made.service.methods())
    port = await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            made.stub = rpc.ExternalProcessorStub(channel)
            made.raw = channel.stream_stream(f"/{module.SERVICE}/Process")
            yield made
            made.service.close()
    finally:
        await server.stop()


def first(key: str = "id-1") -> Any:
    message = pb.ProcessingRequest()
    message.request_headers.SetInParent()
    message.attributes[ATTRIBUTES].update(
        {"request.id": key, "request.size": 4000, "xds.cluster_name": f"pool/{MODEL}"}
    )
    message.metadata_context.filter_metadata["headrace"].update({"model": MODEL, "stream": "1"})
    return message


def chunk(address: str, status: int = 200) -> Any:
    message = pb.ProcessingRequest()
    message.response_body.body = b"data: x\n\n"
    message.attributes[ATTRIBUTES].update({"upstream.address": address, "response.code": status})
    return message


def endpoints(answer: Any) -> list[str]:
    named = answer.dynamic_metadata.fields["headrace-pick"].struct_value.fields["endpoints"].string_value
    return named.split(",") if named else []


async def until_closed(served: Served_) -> None:
    async with asyncio.timeout(30):
        while served.picker.book.open_requests:  # noqa: ASYNC110 (the server's own task)
            await asyncio.sleep(0.005)


async def test_a_stream_names_cells_and_ends_after_the_first_chunk() -> None:
    async with serving() as served:
        call = served.call()
        await call.write(first())
        addresses = endpoints(await call.read())
        assert sorted(addresses) == ["a:80", "b:80"]
        await call.write(chunk(addresses[0]))
        assert (await call.read()).WhichOneof("response") == "response_body"
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        await until_closed(served)
    assert served.outcomes == [Outcome.NAMED]
    assert [each.as_named for each in served.served] == [True]


def head(address: str, status: int = 200, end: bool = False) -> Any:
    message = pb.ProcessingRequest()
    message.response_headers.end_of_stream = end
    message.attributes[ATTRIBUTES].update({"upstream.address": address, "response.code": status})
    return message


async def test_the_headers_say_whose_the_answer_is_and_the_chunk_when_it_came() -> None:
    async with serving() as served:
        call = served.call()
        await call.write(first())
        addresses = endpoints(await call.read())
        await call.write(head(addresses[1]))
        assert (await call.read()).WhichOneof("response") == "response_headers"
        assert served.picker.book.open_requests == 1
        message = pb.ProcessingRequest()
        message.response_body.body = b"data: x\n\n"
        await call.write(message)
        assert (await call.read()).WhichOneof("response") == "response_body"
        assert await call.read() is grpc.aio.EOF
        await until_closed(served)
    assert [(each.cell, each.as_named) for each in served.served] == [(addresses[1][0], False)]


async def test_an_answer_without_a_body_is_judged_by_its_headers() -> None:
    async with serving() as served:
        line_up(served.picker, "ab", penalty=[1.0, 1e6])
        for number in range(FAILURES):
            call = served.call()
            await call.write(first(f"id-{number}"))
            assert endpoints(await call.read())[0] == "a:80"
            await call.write(head("a:80", 503, end=True))
            assert (await call.read()).WhichOneof("response") == "response_headers"
            assert await call.read() is grpc.aio.EOF
        slot = served.picker.book.get("a")
        assert slot is not None
        assert served.picker.is_ejected(GATEWAY, slot, CLOCK.now())
        assert len(served.served) == FAILURES
        await until_closed(served)


@pytest.mark.parametrize("mode", [ProcessingMode.NONE, ProcessingMode.BUFFERED])
async def test_a_body_is_waited_for_only_where_one_is_sent(mode: int) -> None:
    async with serving(prefix_affinity=True) as served:
        call = served.call()
        message = first()
        message.protocol_config.request_body_mode = mode
        await call.write(message)
        answer = await call.read()
        assert bool(endpoints(answer)) == (mode == ProcessingMode.NONE)
        if mode == ProcessingMode.BUFFERED:
            body = pb.ProcessingRequest()
            body.request_body.body = b'{"prompt": "x"}'
            await call.write(body)
            assert endpoints(await call.read())
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        await until_closed(served)
    assert served.outcomes == [Outcome.NAMED]


async def test_who_does_not_say_a_gateway_of_the_settings_is_refused() -> None:
    async with serving() as served:
        for gateway in ("", "gw-other"):
            call = served.call(gateway)
            assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
        assert served.refused == ["pick_unknown_gateway"] * 2
        assert not served.outcomes


async def test_a_request_that_ends_without_an_answer_leaves_nothing_pending() -> None:
    async with serving() as served:
        for ends in ("cancel", "done"):
            call = served.call()
            await call.write(first(ends))
            assert endpoints(await call.read())
            assert served.picker.book.open_requests == 1
            call.cancel() if ends == "cancel" else await call.done_writing()
            await until_closed(served)
        served.picker.book.check()


async def test_an_answer_is_waited_for_no_longer_than_it_counts() -> None:
    async with serving(expiry_s=5) as served:
        served.service._unanswered._seconds = 0.1
        call = served.call()
        await call.write(first())
        await call.read()
        assert await call.read() is grpc.aio.EOF
        await until_closed(served)


async def test_who_asks_nothing_is_not_waited_for() -> None:
    async with serving() as served:
        served.service._unasked._seconds = 0.1
        assert await served.call().code() is grpc.StatusCode.OK
        assert not served.outcomes


async def test_what_is_no_message_ends_its_call_alone() -> None:
    async with serving() as served:
        call = served.raw(metadata=((GATEWAY_METADATA, GATEWAY),), timeout=60)
        await call.write(b"\xff\xff")
        assert await call.code() is grpc.StatusCode.INTERNAL
        call = served.call()
        await call.write(first())
        assert endpoints(await call.read())
        call.cancel()


async def test_what_comes_out_of_turn_ends_its_call() -> None:
    async with serving() as served:
        for said in ([chunk("a:80")], [first(), first()]):
            call = served.call()
            for each in said:
                await call.write(each)
            async with asyncio.timeout(30):
                while await call.read() is not grpc.aio.EOF:
                    pass
                assert await call.code() is grpc.StatusCode.OK
            await until_closed(served)


async def test_what_is_left_to_the_gateway_ends_at_once() -> None:
    async with serving() as served:
        served.picker.on = False
        call = served.call()
        await call.write(first())
        assert endpoints(await call.read()) == []
        assert await call.read() is grpc.aio.EOF
        assert served.outcomes == [Outcome.OFF]


async def test_an_error_in_a_pick_costs_no_request_and_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with serving() as served:
        served.picker.error = ZeroDivisionError("a fault")
        for number in range(3):
            call = served.call()
            await call.write(first(f"r{number}"))
            assert endpoints(await call.read()) == []
        assert served.outcomes == [Outcome.FAILED] * 3
    assert capsys.readouterr().out.count("a pick failed") == 1


async def test_a_pick_that_fails_leaves_nothing_in_the_book() -> None:
    async with serving() as served:
        served.picker.late = ZeroDivisionError("a fault")
        call = served.call()
        await call.write(first())
        assert endpoints(await call.read()) == []
        assert served.outcomes == [Outcome.FAILED]
        assert served.picker.book.open_requests == 0


async def test_a_call_that_ends_as_it_is_answered_leaves_nothing_in_the_book() -> None:
    made = Served_()
    connection = Connection(
        made.service.methods(),
        Limits(unread=10),
        Room(1 << 20),
        Peer("10.0.0.9:5000"),
        lambda: None,
        lambda _, error: None,
        0.0,
    )
    connection.begin()
    fields = [
        *OPENING[:2],
        (":path", f"/{module.SERVICE}/Process"),
        *OPENING[3:],
        (GATEWAY_METADATA, GATEWAY),
    ]
    said = [frames.PREFACE, frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 0})]
    for stream in (1, 3):
        said += headers(stream, fields), data(stream, first(f"r{stream}").SerializeToString())
    connection.receive(b"".join(said), 0.0)
    while connection.turn(0.0):
        pass
    # The answer to the first waits for the peer to read; for the second there is no room.
    assert made.outcomes == [Outcome.NAMED] * 2
    assert connection.calls == 1
    assert made.picker.book.open_requests == len(made.service._unanswered) == 1
    connection.close()
    assert made.picker.book.open_requests == len(made.service._unanswered) == 0
    made.service.close()


async def test_too_many_at_once_go_by_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STREAMS", 2)
    async with serving() as served:
        calls = []
        for number in range(3):
            calls.append(served.call())
            await calls[-1].write(first(f"r{number}"))
            await calls[-1].read()
        assert served.outcomes == [Outcome.NAMED, Outcome.NAMED, Outcome.BUSY]
        for call in calls:
            call.cancel()
        await until_closed(served)


async def test_two_requests_of_one_id_are_two() -> None:
    async with serving() as served:
        calls = [served.call(), served.call()]
        for call in calls:
            await call.write(first("same"))
            await call.read()
        assert served.picker.book.open_requests == 2
        for call in calls:
            call.cancel()
        await until_closed(served)


async def test_an_id_that_looks_like_ours_is_another_request_all_the_same() -> None:
    async with serving() as served:
        calls = []
        for key in ("same", "same#1", "same"):
            calls.append(served.call())
            await calls[-1].write(first(key))
            await calls[-1].read()
        assert served.picker.book.open_requests == 3
        for call in calls:
            call.cancel()
        await until_closed(served)


async def test_it_closes_with_requests_under_way() -> None:
    async with serving() as served:
        calls = [served.call() for _ in range(5)]
        for number, call in enumerate(calls):
            await call.write(first(f"r{number}"))
            await call.read()
        served.service.close()
        await until_closed(served)
        assert served.picker.book.open_requests == 0
        for call in calls:
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK


async def test_slow_picks_have_it_stand_aside(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving() as served:
        served.picker.known.guard._bound_s = 0.0
        for number in range(WINDOW + 1):
            call = served.call()
            await call.write(first(f"r{number}"))
            await call.read()
            call.cancel()
        assert served.outcomes[-1] is Outcome.RESTING
    assert "stands aside" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "named"), [(GATEWAY, True), ("other", False)])
async def test_over_tls_an_envoy_asks_for_the_gateway_that_its_certificate_names(
    tmp_path: Path, name: str, named: bool
) -> None:
    tls, shown = server_and_client(tmp_path, name)
    made = Served_()
    made.service._gateway_of = {GATEWAY: GATEWAY, "other": "gw-2"}.get
    port = GatewayPort(tls, made.service.methods())
    number = await port.start()
    try:
        async with grpc.aio.secure_channel(f"127.0.0.1:{number}", shown) as channel:
            made.stub = rpc.ExternalProcessorStub(channel)
            call = made.call()
            if named:
                await call.write(first())
                assert sorted(endpoints(await call.read())) == ["a:80", "b:80"]
                call.cancel()
                await until_closed(made)
            else:
                assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
                assert made.refused == ["pick_wrong_identity"]
    finally:
        made.service.close()
        await port.stop()


async def test_with_certificates_a_gateway_must_be_named_by_its_own() -> None:
    async with serving() as served:
        served.service._gateway_of = lambda name: name
        assert await served.call().code() is grpc.StatusCode.PERMISSION_DENIED
        assert served.refused == ["pick_wrong_identity"]
