"""The table, pair by pair, and the page that is made from it."""

from __future__ import annotations

import pytest

from headrace_controller.lifecycle import (
    TRANSITIONS,
    CellLife,
    CellState,
    Drain,
    Event,
    EventKind,
    IllegalTransition,
    Transition,
    check,
    render_table,
    step,
)
from headrace_controller.settings import LifecycleSettings

LOADING, READY, DRAINING, FAILED, TERMINATED = CellState
E = EventKind
SETTINGS = LifecycleSettings()
NOW = 100.0


def life_in(state: CellState, *, asleep: bool = False, withdrawn: bool = False) -> CellLife:
    drained = state is DRAINING or (state is TERMINATED and not withdrawn)
    life = CellLife(
        cell_id="a",
        state=state,
        since=50.0,
        cause="test",
        ready_since=40.0 if state is READY else None,
        drain=Drain(400.0, "engine" if asleep else "operator", "t") if drained else None,
        history=(Transition(50.0, None, state, E.REGISTERED, "test"),),
    )
    check(life)
    return life


# For each event: where LOADING, READY, DRAINING, FAILED and TERMINATED (by a drain) go;
# None = the event is illegal there.
EXPECTED: dict[EventKind, tuple[CellState | None, ...]] = {
    E.REGISTERED: (LOADING, READY, DRAINING, FAILED, TERMINATED),
    E.ADOPTED: (READY, None, None, None, None),
    E.ENGINE_LOADING: (LOADING, LOADING, TERMINATED, LOADING, TERMINATED),
    E.ENGINE_SERVING: (READY, READY, DRAINING, READY, TERMINATED),
    E.ENGINE_DOWN: (FAILED, FAILED, TERMINATED, FAILED, TERMINATED),
    E.ENGINE_HUNG: (FAILED, FAILED, TERMINATED, FAILED, TERMINATED),
    E.HUNG_WITHHELD: (None, READY, None, None, None),
    E.ENGINE_SLEEPING: (TERMINATED, DRAINING, DRAINING, TERMINATED, TERMINATED),
    E.SILENCE_DEAD: (FAILED, FAILED, TERMINATED, FAILED, TERMINATED),
    E.SILENCE_ALIVE: (LOADING, READY, DRAINING, FAILED, TERMINATED),
    E.SILENCE_WITHHELD: (LOADING, READY, DRAINING, FAILED, TERMINATED),
    E.HEARD: (LOADING, READY, DRAINING, FAILED, TERMINATED),
    E.HARDWARE_FATAL: (FAILED, FAILED, TERMINATED, FAILED, TERMINATED),
    E.DRAIN_ASKED: (TERMINATED, DRAINING, DRAINING, TERMINATED, TERMINATED),
    E.DRAIN_CANCELLED: (None, None, READY, None, LOADING),
    E.DRAIN_FINISHED: (LOADING, READY, TERMINATED, FAILED, TERMINATED),
    E.DRAIN_DEADLINE: (None, None, TERMINATED, None, None),
    E.GOODBYE_PLANNED: (LOADING, READY, DRAINING, FAILED, TERMINATED),
    E.WITHDRAWN: (TERMINATED, TERMINATED, TERMINATED, TERMINATED, TERMINATED),
    E.RETENTION_OVER: (None, None, None, FAILED, TERMINATED),
}


def test_the_expectations_cover_every_event() -> None:
    assert set(EXPECTED) == set(EventKind)


@pytest.mark.parametrize("kind", list(EventKind), ids=lambda kind: kind.name)
@pytest.mark.parametrize("state", list(CellState), ids=lambda state: state.name)
def test_every_event_in_every_state(state: CellState, kind: EventKind) -> None:
    expected = EXPECTED[kind][state - 1]
    if expected is None:
        with pytest.raises(IllegalTransition) as caught:
            step(life_in(state), Event(kind, "why"), NOW, SETTINGS)
        assert "a: " + state.name in caught.value.story
        return
    new, _ = step(life_in(state), Event(kind, "why"), NOW, SETTINGS)
    assert new.state is expected
    check(new)
    if new.state is not state:
        assert new.history[-1] == Transition(NOW, state, expected, kind, "why")


def test_state_numbers_never_change() -> None:
    assert {state.name: int(state) for state in CellState} == {
        "LOADING": 1,
        "READY": 2,
        "DRAINING": 3,
        "FAILED": 4,
        "TERMINATED": 5,
    }


@pytest.mark.parametrize("kind", [E.ENGINE_SERVING, E.ENGINE_LOADING])
def test_a_cell_that_only_slept_wakes(kind: EventKind) -> None:
    new, _ = step(life_in(TERMINATED, asleep=True), Event(kind), NOW, SETTINGS)
    assert (new.state, new.drain) == (LOADING, None)


def test_a_withdrawn_cell_that_is_named_again_starts_over_and_a_drained_one_stays_out() -> None:
    returned, _ = step(life_in(TERMINATED, withdrawn=True), Event(E.REGISTERED), NOW, SETTINGS)
    assert returned.state is LOADING
    with pytest.raises(IllegalTransition):
        step(life_in(TERMINATED, withdrawn=True), Event(E.DRAIN_CANCELLED), NOW, SETTINGS)


def test_the_page_names_every_pair_of_the_table() -> None:
    page = render_table()
    assert "stateDiagram-v2" in page
    for state in CellState:
        section = page.split(f"## {state.name} ")[1].split("## ")[0]
        rows = {line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")}
        expected = {event.value for of, event in TRANSITIONS if of is state}
        assert rows - {"event", "---"} == expected
    assert "if hold-down not over: stays; else → READY" in page
