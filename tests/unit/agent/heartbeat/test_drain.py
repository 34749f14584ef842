"""When a drained cell counts as empty."""

from __future__ import annotations

from headrace_agent.collectors.readings import EngineReading, EngineState, SourceReading, Status
from headrace_agent.heartbeat.drain import Drains

SINCE = 100.0


def seen(in_flight: int | None, read_at: float | None, status: Status = Status.OK) -> EngineReading:
    return EngineReading(
        EngineState.SERVING, in_flight=in_flight, source=SourceReading("engine", status, read_at)
    )


def begun(deadline_s: float = 60.0) -> Drains:
    drains = Drains()
    drains.start("ctl", "c1", "operator", deadline_s, SINCE)
    return drains


def check(drains: Drains, reading: EngineReading, now: float) -> list[str]:
    """The causes of the drains that are over."""
    return [done.cause for done in drains.check(lambda cell_id: reading, now)]


def test_two_fresh_zeros_finish_a_drain_once() -> None:
    drains = begun()
    assert check(drains, seen(0, 100.5), 100.6) == []
    assert check(drains, seen(0, 101.0), 101.1) == ["no request in flight (asked: operator)"]
    assert check(drains, seen(0, 101.5), 101.6) == []
    assert len(drains) == 0


def test_the_same_reading_counts_once() -> None:
    drains = begun()
    for _ in range(5):
        assert check(drains, seen(0, 100.5), 100.6) == []


def test_a_reading_from_before_the_drain_does_not_count() -> None:
    drains = begun()
    assert check(drains, seen(0, 99.9), 100.0) == []
    assert check(drains, seen(0, 100.4), 100.4) == []
    assert check(drains, seen(0, 100.9), 100.9) != []


def test_a_request_in_between_starts_the_count_over() -> None:
    drains = begun()
    assert check(drains, seen(0, 100.5), 100.5) == []
    assert check(drains, seen(1, 101.0), 101.0) == []
    assert check(drains, seen(0, 101.5), 101.5) == []
    assert check(drains, seen(0, 102.0), 102.0) != []


def test_an_unknown_count_is_no_zero() -> None:
    """An engine whose figures are missing or failed may hold requests."""
    for unknown in (seen(None, 101.0), seen(0, 101.0, Status.FAILED), seen(0, None)):
        drains = begun()
        assert check(drains, seen(0, 100.5), 100.5) == []
        assert check(drains, unknown, 101.0) == []
        assert check(drains, seen(0, 101.5), 101.5) == []
        assert check(drains, seen(0, 102.0), 102.0) != []


def test_the_deadline_ends_a_drain_and_says_so() -> None:
    drains = begun(deadline_s=5.0)
    assert check(drains, seen(3, 104.9), 104.9) == []
    (cause,) = check(drains, seen(3, 105.0), 105.0)
    assert "deadline" in cause


def test_a_cancelled_drain_says_nothing() -> None:
    drains = begun(deadline_s=0.0)
    assert drains.cancel("ctl", "c1")
    assert not drains.cancel("ctl", "c1")
    assert check(drains, seen(0, 200.0), 200.0) == []


def test_asking_again_moves_the_deadline_and_keeps_the_count() -> None:
    drains = begun(deadline_s=5.0)
    assert check(drains, seen(0, 100.5), 100.5) == []
    drains.start("ctl", "c1", "operator", 60.0, 103.0)
    assert check(drains, seen(0, 100.5), 106.0) == []
    assert check(drains, seen(0, 106.5), 106.5) != []


def test_controllers_drain_independently() -> None:
    drains = begun()
    drains.start("other", "c1", "early warning", 1.0, SINCE)
    done = drains.check(lambda cell_id: seen(2, 101.0), 102.0)
    assert [each.controller for each in done] == ["other"]
    assert len(drains) == 1
