"""Random lives: whatever happens in whatever order, the promises hold."""

from __future__ import annotations

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace_controller.lifecycle import (
    TRANSITIONS,
    CellState,
    Event,
    EventKind,
    IllegalTransition,
    NotifyDrained,
    Publish,
    begin,
    check,
    step,
)
from headrace_controller.settings import LifecycleSettings

SETTINGS = LifecycleSettings(history=6)
DOWN = (CellState.FAILED, CellState.TERMINATED)


class LifeMachine(RuleBasedStateMachine):
    """One cell, any events, time that only moves forward."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.life = begin("a", 0.0, "named")
        self.published = False
        self.asked: str | None = None

    @rule(seconds=st.floats(0, 200))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        kind=st.sampled_from(EventKind),
        seconds=st.floats(0, 100),
        by=st.sampled_from(["operator", "early warning", "engine"]),
    )
    def happen(self, kind: EventKind, seconds: float, by: str) -> None:
        event = Event(kind, "random", serving_s=seconds, grace_s=seconds, deadline_s=seconds, requested_by=by)
        old = self.life
        if not TRANSITIONS.get((old.state, kind)):
            with pytest.raises(IllegalTransition):
                step(old, event, self.now, SETTINGS)
            return
        try:
            self.life, told = step(old, event, self.now, SETTINGS)
        except IllegalTransition:
            return  # no branch of the rule holds
        check(self.life)
        self._follow(old.state, event, told)

    def _follow(self, before: CellState, event: Event, told: tuple[object, ...]) -> None:
        """What gateways and askers learn from the instructions alone must be the truth."""
        if any(isinstance(each, Publish) for each in told):
            self.published = not self.published
        ended = [each for each in told if isinstance(each, NotifyDrained)]
        if self.asked and before is CellState.DRAINING and self.life.state is not CellState.DRAINING:
            assert [each.requested_by for each in ended] == [self.asked]
        drain = self.life.drain
        draining = self.life.state is CellState.DRAINING and drain and drain.requested_by != "engine"
        self.asked = drain.requested_by if draining and drain else None
        if before in DOWN and self.life.state is CellState.READY:
            assert event.kind is EventKind.ENGINE_SERVING

    @invariant()
    def published_is_ready(self) -> None:
        assert self.published == (self.life.state is CellState.READY)

    @invariant()
    def history_is_bounded(self) -> None:
        assert 1 <= len(self.life.history) <= SETTINGS.history

    @invariant()
    def no_hold_down_is_longer_than_allowed(self) -> None:
        assert self.life.hold_down_until <= self.now + SETTINGS.hold_down_max_s


LifeMachine.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLifeMachine = LifeMachine.TestCase
