"""A path's condition, what is told of it and when, and the way it is measured."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.network.echo import Echo, Outcome
from headrace_agent.collectors.network.path import Condition, GatewayTarget, Path
from headrace_agent.collectors.network.policy import probe
from headrace_agent.collectors.readings import PathMethod, PathReading

ICMP, TCP = PathMethod.ICMP, PathMethod.TCP_CONNECT
LOST = Echo(Outcome.LOST, ICMP, detail="no reply")
UNABLE = Echo(Outcome.UNABLE, ICMP, detail="not allowed")


def reply(rtt_ms: float, method: PathMethod = ICMP) -> Echo:
    return Echo(Outcome.REPLY, method, rtt_ms)


def make(*echoes: Echo) -> tuple[Path, list[bool]]:
    path = Path(GatewayTarget("gw", "10.0.0.1", 80), ICMP, 0.5)
    return path, [path.take(echo, 1000.0 + 0.5 * step) for step, echo in enumerate(echoes)]


def test_a_path_not_measured_yet_has_no_figures() -> None:
    assert make()[0].reading(1000.0) == PathReading("gw")


def test_changes_are_told_once() -> None:
    echoes = [reply(20.0)] * 3 + [LOST] * 8 + [reply(20.0)] * 2
    _, told = make(*echoes)
    assert [step for step, each in enumerate(told) if each] == [0, 6, 11]


def test_a_dead_path_reads_as_all_lost_and_no_round_trip() -> None:
    path, _ = make(reply(20.0), *[LOST] * 4)
    assert path.condition is Condition.DEAD
    assert path.reading(1002.0) == PathReading("gw", None, None, 1.0, ICMP, 1002.0)


def test_what_this_host_cannot_measure_is_unknown_and_not_dead() -> None:
    path, told = make(UNABLE, UNABLE)
    assert told == [True, False]
    assert not path.dead
    assert path.reading(1001.0) == PathReading("gw", None, None, None, ICMP, None)


def test_a_dropped_echo_changes_nothing() -> None:
    path, told = make(reply(20.0), Echo(Outcome.DROPPED, ICMP), LOST)
    assert told == [True, False, False]
    assert path.reading(1001.0).loss == 0.5


def test_another_way_of_measuring_starts_anew() -> None:
    path, told = make(*[LOST] * 4, reply(35.0, TCP))
    assert told[-1]
    assert path.reading(1002.0) == PathReading("gw", 35.0, None, 0.0, TCP, 1002.0)


def test_figures_that_nothing_renews_are_given_up() -> None:
    path, _ = make(reply(20.0))
    assert path.reading(1009.0).rtt_ms == 20.0
    assert path.reading(1011.0) == PathReading("gw", None, None, None, ICMP, 1000.0)


class Way:
    """A prober that answers what it is told to, and counts."""

    def __init__(self, method: PathMethod, outcome: Outcome) -> None:
        self.method = method
        self.outcome = outcome
        self.asked = 0

    async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
        self.asked += 1
        return Echo(self.outcome, self.method, 5.0 if self.outcome is Outcome.REPLY else None)


R, L, D, U = Outcome.REPLY, Outcome.LOST, Outcome.DROPPED, Outcome.UNABLE


@pytest.mark.parametrize(
    ("icmp", "tcp", "dead", "method", "outcome", "asked"),
    [
        (R, R, False, ICMP, R, (1, 0)),
        (D, R, True, ICMP, D, (1, 0)),
        (L, R, False, ICMP, L, (1, 0)),
        (L, R, True, TCP, R, (1, 1)),
        (L, L, True, ICMP, L, (1, 1)),
        (L, U, True, ICMP, L, (1, 1)),
        (U, R, False, TCP, R, (1, 1)),
        (U, L, False, TCP, L, (1, 1)),
        (U, U, False, ICMP, U, (1, 1)),
    ],
)
async def test_another_way_is_tried_where_the_first_says_nothing(
    icmp: Outcome, tcp: Outcome, dead: bool, method: PathMethod, outcome: Outcome, asked: tuple[int, int]
) -> None:
    ways = (Way(ICMP, icmp), Way(TCP, tcp))
    echo = await probe(ways, ICMP, dead, "10.0.0.1", 80, 1.0)
    assert (echo.method, echo.outcome) == (method, outcome)
    assert (ways[0].asked, ways[1].asked) == asked


async def test_the_way_that_works_for_a_path_is_asked_first() -> None:
    ways = (Way(ICMP, U), Way(TCP, R))
    await probe(ways, TCP, False, "10.0.0.1", 80, 1.0)
    assert (ways[0].asked, ways[1].asked) == (0, 1)


async def test_with_a_single_way_nothing_else_is_tried() -> None:
    echo = await probe((Way(ICMP, L),), ICMP, True, "10.0.0.1", 80, 1.0)
    assert echo.outcome is L
    assert (await probe((), ICMP, False, "10.0.0.1", 80, 1.0)).outcome is U
