"""Twenty thousand beats under constant change hold no more than the first few thousand did."""

from __future__ import annotations

import gc
import random
import sys

from headrace_agent.collectors.app.http.answer import Answer
from headrace_agent.collectors.app.pages.metrics import MetricsSource
from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.network.echo import Echo, Outcome
from headrace_agent.collectors.network.path import GatewayTarget, Path
from headrace_agent.collectors.readings import (
    CellEvent,
    EngineFacts,
    EngineReading,
    EngineState,
    EventKind,
    Model,
    PathMethod,
)
from headrace_agent.heartbeat.build import Identity
from headrace_agent.heartbeat.outbox import Outbox
from headrace_agent.service.node import Node
from headrace_agent.service.watch import Watch
from headrace_agent.settings import AgentSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.support.agent_sources import Fakes
from tests.support.clock import FakeClock

BEATS = 20_000
WARM = 8_000
BEAT_S = 0.5
BEATS_A_LIFE = 700
BEATS_A_STREAM = 900
# One block kept at every 24th beat would be seen; what windows and caches breathe is less.
MOST_BLOCKS = 500
CELLS = ("c1", "c2")
SETTINGS = AgentSettings.model_validate(
    {
        "node": "n",
        "site": "s",
        "controllers": [{"address": "127.0.0.1:1"}],
        "cells": [{"id": cell, "url": f"http://127.0.0.1:{port}"} for port, cell in enumerate(CELLS, 8001)],
    }
)


class Host:
    """An agent without sockets: an engine's pages, paths, and what two controllers are told."""

    def __init__(self) -> None:
        self.clock, self.mishaps, self.random = FakeClock(), Mishaps(), random.Random(1)
        self.fakes = Fakes(*CELLS)
        sources = self.fakes.build(SETTINGS, self.clock, self.fakes.on_event, self.fakes.on_xid, self.mishaps)
        self.node = Node(SETTINGS, Identity("n", "s", "0", 1), sources, self.clock, self.mishaps)
        self.outboxes = [Outbox(self.node) for _ in range(2)]
        self.watch = Watch(self.node, self.clock, self.tell, lambda controller, event: self.tell(event))
        self.metrics = MetricsSource(SETTINGS.engine)
        self.path = Path(GatewayTarget("gw", "gw.example", 80), PathMethod.ICMP, 0.5, 1.0)
        self.served = self.life = 0
        self.sent: dict[str, int] = {}

    def tell(self, event: CellEvent) -> None:
        for outbox in self.outboxes:
            outbox.add(event, self.clock.now())

    def live(self, beats: range) -> None:
        for outbox in self.outboxes:
            outbox.begin()
        for beat in beats:
            self.beat(beat)

    def beat(self, beat: int) -> None:
        now = self.clock.advance(BEAT_S)
        self.engine(beat, now)
        self.echo(beat, now)
        if beat % 50 == 0:
            self.tell(CellEvent("c1", EventKind.ENGINE_HUNG, f"beat {beat}"))
            self.watch.drain("a", pb.Drain(cell_id="c2", cause=f"beat {beat}", deadline_ms=2000))
        self.watch.check_gpus(now)
        self.watch.check_drains(now)
        for outbox in self.outboxes:
            self.stream(outbox, beat, now)

    def engine(self, beat: int, now: float) -> None:
        """A page whose labels and series never come again, from an engine that restarts."""
        if beat % BEATS_A_LIFE == 0:
            self.life, self.served = beat, 0
        self.served += self.random.randrange(4)
        page = (
            f'vllm:num_requests_running{{engine="0",model_name="m"}} {self.random.randrange(9)}\n'
            f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {self.random.randrange(9)}\n'
            f'vllm:lora_requests_info{{running_lora_adapters="a{beat}"}} {beat}\n'
            f'vllm:request_success_total{{engine="0",finished_reason="stop"}} {self.served}\n'
            f'http_requests_total{{handler="/v1/completions",status="2xx"}} {self.served}\n'
            f'vllm:time_to_first_token_seconds_bucket{{engine="{beat % 3}",le="1.0"}} {self.served}\n'
            f'vllm:time_to_first_token_seconds_bucket{{engine="{beat % 3}",le="+Inf"}} {self.served}\n'
            f"process_start_time_seconds {1e9 + self.life}\n"
        )
        bad = beat % 97 == 0
        self.metrics.take(Answer(500 if bad else 200, page.encode()), now)
        adapters = tuple(Model(f"adapter-{beat // 40}-{number}") for number in range(3))
        self.fakes.engines["c1"].now = EngineReading(
            EngineState.SERVING,
            self.metrics.signals(now),
            self.metrics.in_flight(now),
            self.metrics.totals,
            facts=EngineFacts("vllm", "1", adapters),
            source=self.metrics.reading(now),
        )

    def echo(self, beat: int, now: float) -> None:
        alive = beat % 60 < 50
        addresses = (f"10.0.{beat // 500 % 200}.1", f"10.0.{beat // 500 % 200}.2")
        outcome = Outcome.REPLY if alive else Outcome.LOST
        rtt = 10.0 + self.random.random() if alive else None
        self.path.take(Echo(outcome, PathMethod.ICMP, rtt, f"{beat}"), self.path.choose(addresses), now)
        self.path.reading(now)

    def stream(self, outbox: Outbox, beat: int, now: float) -> None:
        """One beat of a stream that is now and then begun anew, and whose events wait to be acked."""
        if beat % BEATS_A_STREAM == 0:
            outbox.begin()
        outbox.want_telemetry()
        outbox.want_liveness()
        while (message := outbox.take(now)) is not None:
            kind = message.WhichOneof("body") or ""
            self.sent[kind] = self.sent.get(kind, 0) + 1
            message.SerializeToString()
        if beat % 200 == 199:
            outbox.acknowledge(outbox.last_id)


def blocks() -> int:
    """The blocks that the interpreter holds once what nobody refers to is gone."""
    gc.collect()
    return sys.getallocatedblocks()


def test_no_growth_over_twenty_thousand_beats() -> None:
    host = Host()
    host.live(range(WARM))
    before = blocks()
    host.live(range(WARM, BEATS))
    grown = blocks() - before
    assert host.sent["telemetry"] == 2 * BEATS
    assert host.sent["event"] > 2 * BEATS / 50
    assert host.sent["hello"] > 2 * BEATS / 40
    assert all(outbox.unacked == 0 for outbox in host.outboxes)
    assert grown < MOST_BLOCKS, f"{grown} blocks more after {BEATS - WARM} beats"
