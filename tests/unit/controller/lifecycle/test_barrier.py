"""A young controller publishes nothing until it knows its fleet."""

from __future__ import annotations

from headrace_controller.lifecycle import Barrier

NONE: frozenset[str] = frozenset()


def test_with_a_snapshot_it_opens_when_all_its_nodes_are_heard() -> None:
    barrier = Barrier(3.0, 100.0, frozenset({"n", "o"}))
    assert not barrier.open(frozenset({"n"}), 100.1)
    assert barrier.open(frozenset({"n", "o", "new"}), 100.2)


def test_with_a_snapshot_it_waits_no_longer_than_set() -> None:
    barrier = Barrier(3.0, 100.0, frozenset({"n", "o"}))
    assert not barrier.open(frozenset({"n"}), 102.9)
    assert barrier.open(frozenset({"n"}), 103.0)


def test_without_a_snapshot_it_waits_from_the_first_agent_on() -> None:
    barrier = Barrier(3.0, 100.0)
    assert not barrier.open(NONE, 150.0)
    assert not barrier.open(frozenset({"n"}), 160.0)
    assert not barrier.open(frozenset({"n"}), 162.9)
    assert barrier.open(frozenset({"n"}), 163.0)


def test_an_empty_snapshot_counts_as_none() -> None:
    barrier = Barrier(3.0, 100.0, NONE)
    assert not barrier.open(frozenset({"n"}), 103.5)
    assert barrier.open(frozenset({"n"}), 106.5)


def test_it_stays_shut_while_nobody_was_heard_and_open_once_open() -> None:
    barrier = Barrier(3.0, 0.0, frozenset({"n"}))
    assert not barrier.open(NONE, 1000.0)
    assert barrier.open(frozenset({"n"}), 1001.0)
    assert barrier.open(NONE, 1002.0)
