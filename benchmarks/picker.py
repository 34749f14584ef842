"""The picker: the choice among cells, whole picks with their books, and the gRPC service on one core.

`choose_us.N` is one choice among N cells: the cost of each, what fits, and who is named.
`pick_us.N` is a pick and its answer, with all that is learned of it. `picks_per_s` is what one core
serves: streams of requests as Envoy sends them, over the processor time that the server's process took;
`bare_per_s` is the same of a service that picks nothing, and `picks_of_bare` their ratio. The rest is of
`picker_added`: what a request waits longer through a real Envoy, at 100 requests a second, some 4 minutes.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import multiprocessing
import random
import resource
from multiprocessing.connection import Connection
from typing import Any

import grpc
import numpy as np
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc

from benchmarks.picker_added import Trusting, figures_of, measure
from benchmarks.result import json_path, median_us, report
from headrace_controller.picker.candidates import Candidates, Lineup
from headrace_controller.picker.choice import Need, choose, fitting
from headrace_controller.picker.cost import OTHERS, RUNNING, costs
from headrace_controller.picker.messages import ANSWER_DONE, CHUNK_DONE, named
from headrace_controller.picker.picker import Picker
from headrace_controller.picker.requests import Ask
from headrace_controller.picker.service import GATEWAY_METADATA, PickerService
from headrace_controller.settings import CapabilitySettings, PickerSettings
from headrace_controller.wire.limits import FOR_GATEWAYS
from headrace_controller.wire.server import WireServer
from headrace_controller.xds.names import PICK_KEY, PICK_NAMESPACE
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.rpc import SERVER_OPTIONS

SEED = 1
SIZES = {9: 20_000, 100: 10_000, 1000: 5_000}
SERVED_CELLS = 100
STREAMS = 3000
ROUNDS = 3
AT_ONCE = 16
MODEL, GATEWAY = "m", "gw"


def fleet(size: int) -> Picker:
    """A picker of so many cells, some busy, of two lengths."""
    picker = Picker(PickerSettings(enabled=True), CapabilitySettings(), np.random.default_rng(SEED))
    rng = random.Random(SEED)
    cells = [f"c{number}" for number in range(size)]
    slots = np.array([picker.join(cell, MODEL, 1.0, 0.0) for cell in cells])
    addresses = [f"10.{number >> 8}.{number & 255}.1:8000" for number in range(size)]
    lengths = np.array([8192.0 if number % 3 else 32768.0 for number in range(size)])
    lineup = Lineup(MODEL, cells, addresses, slots, lengths, 32768.0)
    for slot in slots.tolist():
        picker.book.table[slot, OTHERS] = rng.choice([0, 0, 500, 9000])
        picker.book.table[slot, RUNNING] = rng.randrange(40)
    rtt = np.array([rng.uniform(0, 0.05) for _ in cells])
    picker.candidates = {(GATEWAY, MODEL): Candidates(lineup, 0.0, rtt, np.ones(size))}
    return picker


def choice_us(size: int) -> float:
    """One choice, microseconds."""
    picker = fleet(size)
    candidates = picker.candidates[GATEWAY, MODEL]
    usable, weight = np.ones(size, dtype=np.bool_), PickerSettings().held_up_weight

    def work() -> None:
        found = costs(picker.book.table, candidates, 1200, 0.5, held_up_weight=weight)
        fits = fitting(candidates.lineup, Need(9000, 500))
        choose(found.cost, usable if fits is None else usable & fits, 0.1, 0.3)

    return median_us(work, SIZES[size])


def pick_us(size: int) -> float:
    """One pick and its answer, microseconds."""
    picker, numbers = fleet(size), itertools.count()

    def work() -> None:
        key = f"r{next(numbers)}"
        pick = picker.pick(GATEWAY, Ask(key, MODEL, size=6000, session=key[-2:]), 0.5)
        picker.answered(key, 0.7, pick.addresses[0] if pick.addresses else "")

    return median_us(work, SIZES[size])


def request() -> Any:
    """The first message of a stream, as Envoy sends it."""
    message = pb.ProcessingRequest()
    message.request_headers.SetInParent()
    fields = message.attributes["envoy.filters.http.ext_proc"].fields
    fields["request.id"].string_value = "db20628e-0219-4d58-a1b4-d2b300ee0b42"
    fields["request.size"].number_value = 5300
    fields["xds.cluster_name"].string_value = f"pool/{MODEL}"
    body = message.metadata_context.filter_metadata["headrace"].fields
    body["model"].string_value, body["stream"].string_value = MODEL, "1"
    body["max_tokens"].number_value = 200
    return message


def head(served_by: str) -> Any:
    """The second message of a stream: the answer's headers, of which none are passed on."""
    message = pb.ProcessingRequest()
    message.response_headers.SetInParent()
    fields = message.attributes["envoy.filters.http.ext_proc"].fields
    fields["upstream.address"].string_value = served_by
    fields["response.code"].number_value = 200
    return message


def first_chunk() -> Any:
    """The third message of a stream."""
    message = pb.ProcessingRequest()
    message.response_body.body = b"data: 1\n\n"
    return message


class Bare:
    """Answers and picks nothing: what gRPC itself costs."""

    async def Process(self, _requests: Any, context: Any) -> None:  # noqa: N802
        await context.read()
        await context.write(pb.ProcessingResponse.FromString(named(["10.0.1.1:8000", "10.0.2.1:8000"])))
        for done in (ANSWER_DONE, CHUNK_DONE):
            await context.read()
            await context.write(pb.ProcessingResponse.FromString(done))


async def serve(port: Connection, bare: bool) -> None:
    """The server's process: says its port, serves until told to end, says what it took."""
    picker = fleet(SERVED_CELLS)
    picker.known.guard = Trusting(math.inf)
    clock = SystemClock()
    (candidates,) = picker.candidates.values()
    now = clock.now()
    fresh = Candidates(candidates.lineup, now + 1e6, candidates.rtt_s, candidates.penalty)
    picker.candidates = {(GATEWAY, MODEL): fresh}
    server: Any
    if bare:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        rpc.add_ExternalProcessorServicer_to_server(Bare(), server)
        bound = server.add_insecure_port("127.0.0.1:0")
        await server.start()
    else:
        service = PickerService(picker, clock, PickerSettings(enabled=True), [GATEWAY])
        server = WireServer(service.methods(), clock, limits=FOR_GATEWAYS)
        bound = await server.start(HostPort("127.0.0.1", 0))
    port.send(bound)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, port.recv):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        port.send(usage.ru_utime + usage.ru_stime)
    await server.stop(0)


def server_process(port: Connection, bare: bool) -> None:
    """Entry point of the server's process."""
    asyncio.run(serve(port, bare))


async def load(port: int, streams: int) -> int:
    """Ask for so many picks; how many were named."""
    first, chunk, count = request(), first_chunk(), 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = rpc.ExternalProcessorStub(channel)

        async def worker(streams: int) -> None:
            nonlocal count
            for _ in range(streams):
                call = stub.Process(metadata=((GATEWAY_METADATA, GATEWAY),), timeout=10)
                await call.write(first)
                answer = await call.read()
                pick = answer.dynamic_metadata.fields[PICK_NAMESPACE].struct_value.fields[PICK_KEY]
                count += bool(pick.string_value)
                await call.write(head(pick.string_value.partition(",")[0]))
                await call.read()
                await call.write(chunk)
                await call.read()
                await call.read()

        await asyncio.gather(*(worker(streams // AT_ONCE) for _ in range(AT_ONCE)))
    return count


def streams_per_s(bare: bool) -> float:
    """Streams for each second of the server's processor time."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=server_process, args=(there, bare))
    process.start()
    try:
        port = here.recv()
        asyncio.run(load(port, STREAMS // 10))
        here.send(True)
        before = here.recv()
        count = asyncio.run(load(port, STREAMS))
        here.send(True)
        spent: float = here.recv() - before
        assert count > 0.95 * STREAMS, f"only {count} of {STREAMS} were named a cell"
    finally:
        here.send(False)
        process.join(10)
    return STREAMS / spent


def main() -> None:
    """Run it."""
    path = json_path(__doc__ or "")
    figures = {f"choose_us.{size}": choice_us(size) for size in SIZES}
    figures |= {f"pick_us.{size}": pick_us(size) for size in SIZES}
    # In turn, so that both meet the same machine.
    runs = [(streams_per_s(bare=False), streams_per_s(bare=True)) for _ in range(ROUNDS)]
    figures["picks_per_s"] = max(picks for picks, _ in runs)
    figures["bare_per_s"] = max(bare for _, bare in runs)
    figures["picks_of_bare"] = figures["picks_per_s"] / figures["bare_per_s"]
    figures |= figures_of(asyncio.run(measure()))
    report("picker", SEED, figures, path)


if __name__ == "__main__":
    main()
