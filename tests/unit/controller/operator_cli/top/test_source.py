"""Looks come from a thread of their own, as often as the region can be read."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace_controller.operator_cli.client import Code, Gone, Refused
from headrace_controller.operator_cli.top.rows import Look
from headrace_controller.operator_cli.top.source import ApiSource, Feed, SourceError
from tests.support import fleet_pages as pages
from tests.support.clock import FakeClock
from tests.unit.controller.operator_cli.top.fake_source import FakeSource

WAIT_S = 10.0


class FakeClient:
    """Answers by path, or raises what it finds there."""

    url = "http://controller:18002"

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, object]] = []

    def ask(self, path: str, *, method: str = "GET", body: object = None, query: object = None) -> object:
        self.asked.append((method, path, body if method != "GET" else query))
        found = self.answers[path]
        if isinstance(found, Exception):
            raise found
        return found


def source(answers: dict[str, object]) -> ApiSource:
    return ApiSource(FakeClient(answers))  # type: ignore[arg-type]


CELL = pages.cell("a/b")
GOOD = {"/api/v1/status": pages.status(CELL), "/api/v1/cells": pages.page(CELL)}


def test_a_look_is_made_of_the_status_and_all_pages_of_cells() -> None:
    assert [row.id for row in source(dict(GOOD)).look().rows] == ["a/b"]


def test_a_story_is_the_cell_and_why() -> None:
    path = "/api/v1/cells/a/b"
    found = source({path: pages.detail(CELL), f"{path}/explain": {"explanations": [1]}}).story("a/b")
    assert (found.detail["cell"]["id"], found.explanations) == ("a/b", [1])


def test_acts_say_the_state_that_follows() -> None:
    path = "/api/v1/cells/a/b"
    made = FakeClient({f"{path}/drain": {"state": "DRAINING"}, f"{path}/undrain": {"state": ""}})
    acting = ApiSource(made)  # type: ignore[arg-type]
    assert acting.drain("a/b", "why") == "DRAINING"
    assert acting.undrain("a/b", "why") == "not known yet"
    assert made.asked[0] == ("POST", f"{path}/drain", {"cause": "why"})


@pytest.mark.parametrize(
    ("answer", "words", "code"),
    [
        (Gone("connection refused"), "connection refused", Code.UNREACHABLE),
        (Refused("no token", Code.NOT_LET_IN), "no token", Code.NOT_LET_IN),
        ({}, "does not answer as a controller of version", Code.UNREACHABLE),
        ([1], "does not answer as a controller of version", Code.UNREACHABLE),
        (None, "does not answer as a controller of version", Code.UNREACHABLE),
    ],
)
def test_what_goes_wrong_is_said(answer: object, words: str, code: Code) -> None:
    with pytest.raises(SourceError, match=words) as found:
        source({**GOOD, "/api/v1/status": answer}).look()
    assert found.value.code is code


@contextmanager
def feeding(fed: FakeSource) -> Iterator[tuple[Feed, queue.Queue[Look | SourceError]]]:
    told: queue.Queue[Look | SourceError] = queue.Queue()
    feed = Feed(fed, 600.0, FakeClock(), told.put)
    feed.start()
    try:
        yield feed, told
    finally:
        feed.stop()


def test_a_feed_tells_looks_and_failures_and_looks_again_when_it_is_hurried() -> None:
    fed = FakeSource([pages.cell("c1")])
    with feeding(fed) as (feed, told):
        first = told.get(timeout=WAIT_S)
        assert isinstance(first, Look)
        fed.fails = "connection refused"
        feed.hurry()
        second = told.get(timeout=WAIT_S)
        assert isinstance(second, SourceError)
        assert str(second) == "connection refused"


def test_a_feed_that_was_stopped_tells_nothing_more() -> None:
    with feeding(FakeSource([pages.cell("c1")])) as (feed, told):
        told.get(timeout=WAIT_S)
        feed.stop()
        assert told.empty()
