"""While publications take long: who joins waits for their rest, who fails is out at the next tick."""

from __future__ import annotations

import pytest

from headrace_controller.control.pace import LONGEST_REST_S
from headrace_controller.projection import Plan
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.control.region import Region

TOOK_S = 0.1


class Slow(Region):
    """Each publication takes a while."""

    def publish(self, plan: Plan) -> None:
        self.clock.advance(TOOK_S)

    def told(self) -> list[str]:
        plan = self.loop.published
        return [] if plan is None else [each.cell_id for each in plan.pools["m"]["gw-1"]]

    def join(self, cell: str) -> None:
        self.connect(cell, node=f"n-{cell}")
        self.beat(cell, node=f"n-{cell}")


@pytest.fixture
def slow() -> Slow:
    """Two READY cells, just published, and a third one that serves since."""
    made = Slow()
    made.join("c1")
    made.join("c2")
    made.tick(0.05)
    assert made.told() == ["c1", "c2"]
    made.join("c3")
    made.tick(0.05)
    return made


def test_who_joins_is_told_after_the_rest(slow: Slow) -> None:
    assert slow.loop.book.life("c3").carries_weight
    assert slow.told() == ["c1", "c2"]
    slow.tick(LONGEST_REST_S)
    assert slow.told() == ["c1", "c2", "c3"]


def test_who_fails_is_out_at_once_and_who_joined_is_in_with_it(slow: Slow) -> None:
    down = pb.CellEvent(cell_id="c1", kind=pb.CELL_EVENT_KIND_ENGINE_DOWN, event_id=1)
    slow.loop.event("n-c1", down, slow.clock.now())
    slow.tick(0.0)
    assert slow.told() == ["c2", "c3"]


def test_another_address_of_a_cell_that_gateways_hold_is_told_at_once(slow: Slow) -> None:
    facts = pb.CellFacts(
        cell_id="c2", address=pb.Address(host="127.0.0.9", port=8000), models=[pb.ModelFacts(id="m")]
    )
    hello = pb.Hello(node="n-c2", site="berlin", incarnation=1, cells=[facts])
    slow.loop.hello(hello, slow.clock.now())
    slow.tick(0.0)
    assert slow.loop.published is not None
    assert "127.0.0.9" in [each.host for each in slow.loop.published.pools["m"]["gw-1"]]


def test_what_operators_want_is_obeyed_at_once(slow: Slow) -> None:
    slow.loop.drain("c2", "repair", None)
    slow.tick(0.0)
    assert slow.told() == ["c1", "c3"]
