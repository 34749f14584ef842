"""A path's condition, what is told of it and when, and the way it is measured."""

from __future__ import annotations

import pytest

from headrace_agent.collectors.network.echo import Echo, Outcome
from headrace_agent.collectors.network.path import Condition, GatewayTarget, Path
from headrace_agent.collectors.network.policy import Return, probe, probe_preferred
from headrace_agent.collectors.readings import PathMethod, PathReading

ICMP, TCP = PathMethod.ICMP, PathMethod.TCP_CONNECT
V4, V6 = "10.0.0.1", "2001:db8::1"
LOST = Echo(Outcome.LOST, ICMP, detail="no reply")
UNABLE = Echo(Outcome.UNABLE, ICMP, detail="not allowed")


def reply(rtt_ms: float, method: PathMethod = ICMP) -> Echo:
    return Echo(Outcome.REPLY, method, rtt_ms)


def make(*echoes: Echo) -> tuple[Path, list[bool]]:
    path = Path(GatewayTarget("gw", V4, 80), ICMP, 0.5, 1.0)
    return path, [path.take(echo, V4, 1000.0 + 0.5 * step) for step, echo in enumerate(echoes)]


def test_a_path_not_measured_yet_has_no_figures() -> None:
    assert make()[0].reading(1000.0) == PathReading("gw")


def test_changes_are_told_once() -> None:
    echoes = [reply(20.0)] * 3 + [LOST] * 8 + [reply(20.0)] * 2
    _, told = make(*echoes)
    assert [step for step, each in enumerate(told) if each] == [0, 6, 11]


def test_a_dead_path_reads_as_all_lost_and_no_round_trip() -> None:
    path, _ = make(reply(20.0), *[LOST] * 4)
    assert path.condition is Condition.DEAD
    assert path.reading(1002.0) == PathReading("gw", None, None, 1.0, ICMP, 1002.0, "no reply")


def test_what_this_host_cannot_measure_is_unknown_and_not_dead() -> None:
    path, told = make(UNABLE, UNABLE)
    assert told == [True, False]
    assert not path.dead
    assert path.reading(1001.0) == PathReading("gw", None, None, None, ICMP, None, "not allowed")


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


def test_a_dead_path_with_a_long_time_out_stays_dead_between_its_echoes() -> None:
    path = Path(GatewayTarget("gw", V4, 80), ICMP, 0.5, 30.0)
    for step in range(4):
        path.take(LOST, V4, 1000.0 + 31 * step)
    assert path.reading(1093.0 + 60.0).loss == 1.0


def test_the_address_that_answers_is_kept_however_the_name_server_orders_them() -> None:
    path, _ = make(reply(20.0))
    assert path.choose([V6, V4]) == V4


def test_while_nothing_answers_every_address_is_tried_in_turn() -> None:
    path = Path(GatewayTarget("gw", "gw.example", 80), ICMP, 0.5, 1.0)
    asked = []
    for step in range(4):
        asked.append(path.choose([V6, V4]))
        path.take(LOST, asked[-1], 1000.0 + step)
    assert asked == [V6, V4, V6, V4]
    assert path.dead, "silence on both is the path's"


def test_an_ip_version_that_this_host_lacks_is_passed_over() -> None:
    path = Path(GatewayTarget("gw", "gw.example", 80), ICMP, 0.5, 1.0)
    path.take(UNABLE, V6, 1000.0)
    assert path.choose([V6, V4]) == V4


def test_a_living_path_that_loses_one_echo_stays_at_its_address() -> None:
    path, _ = make(reply(20.0), LOST)
    assert path.choose([V4, V6]) == V4


def test_figures_of_two_addresses_are_not_mixed() -> None:
    path, _ = make(*[reply(20.0)] * 5)
    assert path.take(reply(90.0), V6, 1003.0), "the change is told"
    assert path.reading(1003.0) == PathReading("gw", 90.0, None, 0.0, ICMP, 1003.0)


def test_a_name_that_moves_to_a_silent_address_gives_up_the_old_figures() -> None:
    path, _ = make(*[reply(20.0)] * 5)
    assert path.choose([V6]) == V6
    path.take(LOST, V6, 1003.0)
    assert path.reading(1003.0) == PathReading("gw", None, None, 1.0, ICMP, 1003.0, "no reply")


def test_a_silent_path_does_not_come_to_life_by_losses_at_another_address() -> None:
    path, _ = make(*[LOST] * 4)
    assert not path.take(LOST, V6, 1002.0)
    assert path.dead


def test_an_echo_not_believed_by_another_way_leaves_a_dead_path_dead() -> None:
    path, _ = make(*[LOST] * 4)
    path.take(Echo(Outcome.DROPPED, TCP), V4, 1002.0)
    assert path.reading(1002.0).loss == 1.0


def test_a_path_that_flaps_shows_loss_after_each_return() -> None:
    path, told = make(*([reply(20.0)] * 4 + [LOST] * 4) * 5, reply(20.0))
    assert path.reading(1020.0).loss == pytest.approx(4 / 5)
    assert sum(told) == 11, "each change once"


def test_why_a_stand_in_is_used_stays_with_the_reading() -> None:
    path, _ = make(Echo(Outcome.REPLY, TCP, 5.0, "not allowed"), reply(5.0, TCP))
    assert path.reading(1001.0).detail == "not allowed"
    path.take(reply(5.0), V4, 1002.0)
    assert path.reading(1002.0).detail == ""


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


async def test_a_reply_by_a_stand_in_says_why_the_first_way_gave_none() -> None:
    class Unable(Way):
        async def echo(self, address: str, port: int, timeout_s: float) -> Echo:
            return Echo(U, self.method, detail="not allowed")

    assert (await probe((Unable(ICMP, U), Way(TCP, R)), ICMP, False, V4, 80, 1.0)).detail == "not allowed"


@pytest.mark.parametrize(("outcome", "answers"), [(R, True), (L, False), (D, False), (U, False)])
async def test_only_a_reply_brings_the_preferred_way_back(outcome: Outcome, answers: bool) -> None:
    ways = (Way(ICMP, outcome), Way(TCP, R))
    echo = await probe_preferred(ways, V4, 80, 1.0)
    assert (echo is not None) is answers
    assert ways[1].asked == 0


def test_the_preferred_way_is_tried_again_less_and_less_often_when_it_fails_again() -> None:
    again = Return()
    assert not again.due(1e9), "it is in use"
    again.left(1000.0)
    assert [again.due(1000.0 + after) for after in (59.0, 60.0, 61.0, 119.0, 120.0)] == [
        False,
        True,
        False,
        False,
        True,
    ]
    again.came_back()
    assert not again.due(1e9)
    again.left(2000.0)
    assert [again.due(2000.0 + after) for after in (119.0, 120.0)] == [False, True]
    for _ in range(10):
        again.left(3000.0)
    assert again.due(3000.0 + Return.MOST_S)


def test_a_path_on_a_stand_in_comes_due_for_the_preferred_way() -> None:
    path, _ = make(*[LOST] * 4, reply(5.0, TCP))
    assert not path.return_due(1003.0)
    assert path.return_due(1002.0 + Return.FIRST_S)
    path.take(reply(5.0), V4, 1100.0)
    assert not path.return_due(1e9)
