"""The two verdicts: alive is what a restart could mend, ready is what the agent is for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.service.health import Health, Phase
from headrace_agent.service.pulse import Pulse
from headrace_agent.service.reload import Reloader
from headrace_agent.service.streams import Streams
from tests.support.clock import FakeClock


class Stream:
    """All that the verdicts ask of a stream."""

    def __init__(self) -> None:
        self.connected = False


class Desk:
    """An agent with one controller, as far as its health goes."""

    def __init__(self) -> None:
        self.clock, self.mishaps, self.phase, self.stream = FakeClock(), Mishaps(), Phase(), Stream()
        self.pulse = Pulse(self.clock)
        self.reloader = Reloader(None, asyncio.Event(), self.clock, self.mishaps)
        self.health = Health(self.phase, self.pulse, self._streams(), self.reloader, self.mishaps, self.clock)

    def _streams(self) -> Streams:
        stream = self.stream

        class One(Streams):
            def __init__(self) -> None:
                self._streams = {"ctl:1": stream}  # type: ignore[dict-item]

            def __iter__(self) -> Iterator[str]:
                return iter(self._streams)

        return One()


def test_a_controller_that_is_away_is_no_reason_to_restart() -> None:
    desk = Desk()
    desk.phase.looked = True
    assert desk.health.live({}).status == 200
    ready = desk.health.ready({"node": "n"})
    assert ready.status == 503
    assert ready.body["reasons"] == ["no controller is connected: ctl:1"]
    assert ready.body["controllers"] == {"ctl:1": False}
    desk.stream.connected = True
    assert desk.health.ready({}).status == 200


def test_ready_comes_with_the_first_look_and_goes_with_the_goodbye() -> None:
    desk = Desk()
    desk.stream.connected = True
    assert "first time" in desk.health.ready({}).body["reasons"][0]
    desk.phase.looked = True
    assert desk.health.ready({}).status == 200
    desk.phase.leaving = True
    assert desk.health.ready({}).body["reasons"] == ["the agent is leaving"]
    assert desk.health.live({}).status == 200


def test_a_loop_that_stood_still_is_neither_alive_nor_ready() -> None:
    desk = Desk()
    desk.phase.looked = desk.stream.connected = True
    desk.pulse.beat(desk.clock.now())
    desk.pulse.beat(desk.clock.advance(10.0))
    for verdict in (desk.health.live({}), desk.health.ready({})):
        assert verdict.status == 503
        assert verdict.body["status"] == "unwell"
        assert "stood still for 9.0 s" in verdict.body["reasons"][0]


def test_parts_that_are_contained_and_a_refused_reload_are_named_and_kill_nobody() -> None:
    desk = Desk()
    desk.mishaps.note("paths", KeyError("x"))
    desk.reloader.trouble = "line 3: bad"
    live = desk.health.live({})
    assert live.status == 200
    assert (live.body["broken_parts"], live.body["reload"]) == (["paths"], "line 3: bad")
    desk.mishaps.clear("paths")
    assert desk.health.live({}).body["broken_parts"] == []
