"""The picker as a whole: whom it names, what it learns, and whom it never names."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_controller.picker import cost
from headrace_controller.picker.affinity import BLOCK_S
from headrace_controller.picker.ejections import FAILURES, FIRST_S, OVERTAKEN, Ejections
from headrace_controller.picker.picker import MAX_AGE_S, Picker
from headrace_controller.picker.requests import NAMING, Outcome, Pick
from headrace_controller.picker.sizes import MOST_BYTES_PER_TOKEN
from headrace_controller.settings import CapabilitySettings
from tests.unit.controller.picker.builders import GATEWAY, MODEL, ask, line_up, picker_of

RULE = CapabilitySettings()


def pick(picker: Picker, key: str = "r", now: float = 0.0, gateway: str = GATEWAY, **more: object) -> Pick:
    return picker.pick(gateway, ask(key, **more), now)


def pending(picker: Picker, cell: str) -> float:
    slot = picker.book.get(cell)
    assert slot is not None
    return float(picker.book.table[slot, cost.PENDING])


def test_requests_go_where_the_least_is_pending() -> None:
    picker = picker_of()
    line_up(picker, "ab")
    first = pick(picker, "long", tokens=16_000)
    for number in range(8):
        assert pick(picker, f"r{number}", tokens=500).cells[0] != first.cells[0]
    assert pick(picker, "last", tokens=14_000).outcome is Outcome.NAMED


def test_long_prompts_go_where_they_hold_up_few_answers() -> None:
    """Of two cells that promise nearly the same; short prompts hold up nobody for long."""
    picker = picker_of(held_up_weight=0.1)
    line_up(picker, "ab", rtt_s=[0.0, 0.05])
    slot = picker.book.get("a")
    assert slot is not None
    picker.book.told(slot, in_flight=20, waiting=0, read_at=0.0, met_tokens=800, now=0.0)
    assert pick(picker, "short", tokens=10).cells[0] == "a"
    assert pick(picker, "long", tokens=8000).cells[0] == "b"
    view = picker.recent.view("long", 0.0)
    assert view is not None
    charged = {each.cell: each.held_up_s for each in view.candidates}
    assert charged["a"] > 1.0 > charged["b"] == 0.0
    indifferent = picker_of(held_up_weight=0)
    line_up(indifferent, "ab", rtt_s=[0.0, 0.05])
    indifferent.book.told(slot, in_flight=20, waiting=0, read_at=0.0, met_tokens=800, now=0.0)
    assert pick(indifferent, "long", tokens=8000).cells[0] == "a"


def test_all_named_cells_are_different_and_their_addresses_are_those_of_the_lineup() -> None:
    picker = picker_of()
    line_up(picker, "abcd")
    found = pick(picker)
    assert len(set(found.cells)) == 3
    assert list(found.addresses) == [f"{cell}:80" for cell in found.cells]


def test_a_long_way_and_a_bad_opinion_cost() -> None:
    picker = picker_of()
    line_up(picker, "abc", rtt_s=[0.5, 0.0, 0.0], penalty=[1.0, 1.0, 4.0])
    assert list(pick(picker).cells) == ["b", "c", "a"] or list(pick(picker).cells) == ["b", "a", "c"]
    assert pick(picker, "again").cells[0] == "b"


def test_each_gateway_has_its_own_paths_and_all_share_the_book() -> None:
    picker = picker_of()
    line_up(picker, "ab", rtt_s=[0.0, 0.3])
    line_up(picker, "ab", rtt_s=[0.3, 0.0], gateway="h")
    assert pick(picker, "1", gateway="g").cells[0] == "a"
    assert pick(picker, "2", gateway="h").cells[0] == "b"
    for number in range(40):
        pick(picker, f"r{number}", gateway="g", tokens=2000)
    assert pending(picker, "b") > 20_000


def test_what_it_cannot_know_it_leaves_to_the_gateway() -> None:
    picker = picker_of()
    assert pick(picker).outcome is Outcome.NO_POOL
    line_up(picker, "a", now=0.0)
    assert pick(picker, now=MAX_AGE_S).outcome is Outcome.NAMED
    assert pick(picker, now=MAX_AGE_S + 0.01) == Pick(Outcome.STALE)
    line_up(picker, "", now=5.0)
    assert pick(picker, now=5.0).outcome is Outcome.NO_CELL
    picker.on = False
    assert pick(picker, now=5.0) == Pick(Outcome.OFF)
    assert picker.book.open_requests == 1


def test_a_share_is_left_to_the_weights_and_followed_all_the_same() -> None:
    picker = picker_of(trickle=0.25)
    line_up(picker, "ab")
    found = Counter(pick(picker, f"r{number}").outcome for number in range(400))
    assert found[Outcome.LEFT] == pytest.approx(100, abs=30)
    assert set(found) == {Outcome.LEFT, Outcome.NAMED}
    left = next(f"r{n}" for n in range(400) if picker.recent.get(f"r{n}").pick.outcome is Outcome.LEFT)  # type: ignore[union-attr]
    served = picker.answered(left, 1.0, "b:80")
    assert served is not None
    assert (served.cell, served.as_named, served.observed_s) == ("b", False, 1.0)
    assert not served.named


def test_what_ran_out_of_time_is_not_followed_any_more() -> None:
    picker = picker_of(expiry_s=5)
    line_up(picker, "ab")
    for number in range(5):
        pick(picker, f"old{number}")
    line_up(picker, "ab", now=6.0)
    pick(picker, "new", now=6.0)
    assert set(picker._followed) == {"new"}
    assert picker.answered("old0", 6.1, "a:80") is None
    assert picker.book.lost == 5


def test_it_learns_how_fast_cells_are_and_predicts_it() -> None:
    """No figure is given: b takes three times as long, and soon gets a quarter of the work."""
    picker = picker_of(tolerance=0.1)
    line_up(picker, "ab")
    took, free = {"a": 1 / 10_000, "b": 3 / 10_000}, {"a": 0.0, "b": 0.0}
    events: list[tuple[float, str, str]] = []
    work, errors = Counter[str](), []
    rng = np.random.default_rng(5)
    now = 0.0
    for number in range(1500):
        now += rng.exponential(0.12)
        for at, key, cell in sorted(event for event in events if event[0] <= now):
            served = picker.answered(key, at, f"{cell}:80")
            assert served is not None
            if number > 500 and served.predicted_s and served.observed_s:
                errors.append(abs(np.log(served.observed_s / served.predicted_s)))
        events = [event for event in events if event[0] > now]
        line_up(picker, "ab", now=now)
        tokens = int(rng.lognormal(6.5, 1.0)) + 10
        cell = pick(picker, f"r{number}", now, tokens=tokens).cells[0]
        free[cell] = max(free[cell], now) + tokens * took[cell]
        events.append((free[cell] + 0.02, f"r{number}", cell))
        if number > 500:
            work[cell] += tokens
    assert work["b"] / work.total() < 0.35
    assert np.median(errors) < 0.1
    picker.book.check()


def test_a_session_stays_as_long_as_its_cell_is_not_much_dearer() -> None:
    picker = picker_of(balance=0.5)
    line_up(picker, "ab", rtt_s=[0.0, 0.02])
    pick(picker, "1", session="s")
    picker.answered("1", 0.1, "b:80")
    found = pick(picker, "2", now=0.2, session="s")
    assert (found.outcome, found.cells[0]) == (Outcome.AFFINITY, "b")
    assert pick(picker, "3", now=0.2).cells[0] == "a"
    outcomes = [pick(picker, f"x{number}", now=0.2, session="s", tokens=3000) for number in range(20)]
    assert {each.outcome for each in outcomes} == {Outcome.AFFINITY, Outcome.NAMED}
    assert {each.cells[0] for each in outcomes if each.outcome is Outcome.NAMED} == {"a"}


def test_a_session_that_grows_finds_what_it_sent_before() -> None:
    """Its last prompt, at the cell that answered; nothing of it once it has begun anew."""
    picker = picker_of()
    line_up(picker, "ab")
    pick(picker, "1", session="s", tokens=3000)
    picker.answered("1", 0.4, "b:80")

    def cached(key: str, tokens: int) -> dict[str, float]:
        pick(picker, key, now=0.5, session="s", tokens=tokens)
        view = picker.recent.view(key, 0.5)
        assert view is not None
        return {each.cell: each.cached_tokens for each in view.candidates}

    assert cached("2", 4000) == {"a": 0.0, "b": 3000.0}
    assert cached("3", 2000) == {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize("others", ["", "z"])
def test_a_cell_that_was_forgotten_and_joins_again_holds_nothing_of_a_session(others: str) -> None:
    """Whether it gets its slot back, or another has that by now."""
    picker = picker_of()
    line_up(picker, "ab")
    pick(picker, "1", session="s", tokens=3000)
    picker.answered("1", 0.4, "b:80")
    picker.forget("b", 1.0)
    line_up(picker, ["a", *others, "b"], now=300.0)
    pick(picker, "2", now=300.0, session="s", tokens=4000)
    view = picker.recent.view("2", 300.0)
    assert view is not None
    assert {each.cached_tokens for each in view.candidates} == {0.0}


@pytest.mark.parametrize(("quiet_s", "held"), [(BLOCK_S - 1, 3000.0), (BLOCK_S + 1, 0.0)])
def test_what_a_session_sent_is_held_no_longer_than_blocks_are(quiet_s: float, held: float) -> None:
    picker = picker_of()
    line_up(picker, "a")
    pick(picker, "1", session="s", tokens=3000)
    picker.answered("1", 0.4, "a:80")
    now = 0.4 + quiet_s
    line_up(picker, "a", now=now)
    assert pick(picker, "2", now=now, session="s", tokens=4000).outcome is Outcome.AFFINITY
    view = picker.recent.view("2", now)
    assert view is not None
    assert view.candidates[0].cached_tokens == held


def test_a_shared_beginning_is_worth_what_it_saves() -> None:
    picker = picker_of()
    line_up(picker, "ab", rtt_s=[0.0, 0.02])
    blocks = tuple(range(8))
    pick(picker, "1", blocks=blocks, tokens=4096)
    picker.answered("1", 0.3, "b:80")
    pick(picker, "2", now=0.4, tokens=100, session="other")
    assert pick(picker, "3", now=0.5, blocks=(*blocks[:7], 99), tokens=4096).cells[0] == "b"
    assert pick(picker, "4", now=0.5, blocks=(77, *blocks[1:]), tokens=100).cells[0] == "a"


def test_a_saving_that_does_not_come_true_is_believed_less() -> None:
    picker = picker_of()
    line_up(picker, "a")
    blocks = tuple(range(8))
    slot = picker.book.get("a")
    assert slot is not None
    for number in range(80):
        now = 10.0 * number
        line_up(picker, "a", now=now)
        pick(picker, f"r{number}", now=now, blocks=blocks if number % 2 else (), tokens=8000)
        picker.answered(f"r{number}", now + 1.0, "a:80")
    assert picker.known.prefixes.trust(slot) < 0.5


def test_a_failing_cell_is_ejected_at_its_gateway_and_comes_back() -> None:
    picker = picker_of()
    line_up(picker, "ab", rtt_s=[0.0, 0.1])
    line_up(picker, "ab", rtt_s=[0.0, 0.1], gateway="h")
    for number in range(FAILURES):
        assert pick(picker, f"r{number}").cells[0] == "a"
        picker.answered(f"r{number}", 0.1, "b:80")
    assert list(pick(picker, "x").cells) == ["b"]
    assert pick(picker, "y", gateway="h").cells[0] == "a"
    line_up(picker, "ab", now=FIRST_S + 1, rtt_s=[0.0, 0.1])
    assert pick(picker, "z", now=FIRST_S + 1).cells[0] == "a"


def test_a_slow_cell_that_another_overtook_is_learned_to_be_slow_and_not_called_unable() -> None:
    picker = picker_of(hedge_after_s=1.0)
    line_up(picker, "ab", rtt_s=[0.0, 0.1])
    slot = picker.book.get("a")
    assert slot is not None
    before = picker.known.learner.rates(slot).predict(1000, 0)
    for number in range(FAILURES):
        line_up(picker, "ab", now=5.0 * number, rtt_s=[0.0, 0.1], penalty=[1.0, 1e6])
        assert pick(picker, f"r{number}", now=5.0 * number).cells[0] == "a"
        picker.answered(f"r{number}", 5.0 * number + 1.2, "b:80", began_at=5.0 * number + 1.1)
    assert not picker.is_ejected(GATEWAY, slot, 5.0 * FAILURES)
    assert picker.known.learner.rates(slot).predict(1000, 0) > 1.5 * before
    # What began at once elsewhere had been refused.
    for number in range(FAILURES):
        line_up(picker, "ab", now=30.0, rtt_s=[0.0, 0.1], penalty=[1.0, 1e6])
        pick(picker, f"x{number}", now=30.0)
        picker.answered(f"x{number}", 31.2, "b:80", began_at=30.1)
    assert picker.is_ejected(GATEWAY, slot, 31.3)


def test_who_is_overtaken_every_time_is_ejected_in_the_end() -> None:
    picker = picker_of(hedge_after_s=1.0)
    line_up(picker, "ab")
    slot = picker.book.get("a")
    assert slot is not None
    for number in range(int(FAILURES / OVERTAKEN)):
        assert not picker.is_ejected(GATEWAY, slot, 0.0)
        line_up(picker, "ab", penalty=[1.0, 1e6])
        pick(picker, f"r{number}")
        picker.answered(f"r{number}", 2.0, "b:80", began_at=1.5)
    assert picker.is_ejected(GATEWAY, slot, 2.0)


def test_a_cell_that_gave_no_answer_is_not_believed_to_hold_the_prompt() -> None:
    blocks = tuple(range(8))
    for how in ("elsewhere", "error", "left"):
        picker = picker_of()
        line_up(picker, "ab", penalty=[1.0, 1.5])
        assert pick(picker, "r", tokens=8000, blocks=blocks).cells[0] == "a"
        if how == "left":
            picker.ended("r", 0.1)
        else:
            by, status = ("b:80", 200) if how == "elsewhere" else ("a:80", 500)
            picker.answered("r", 0.1, by, status)
        lineup = picker.candidates[GATEWAY, MODEL].lineup
        held = picker.known.prefixes.cached(lineup, blocks, 1000.0, 0.2)
        assert (None if held is None else held.tolist()) == ([0.0, 8000.0] if how == "elsewhere" else None)


def test_answers_of_the_gateway_itself_and_5xx_count_as_failures_and_4xx_do_not() -> None:
    answers = (("", 503, True), ("", 0, True), ("a:80", 502, True), ("a:80", 400, False), ("", 429, False))
    for address, status, ejected in answers:
        picker = picker_of()
        line_up(picker, "a")
        for number in range(FAILURES):
            pick(picker, f"r{number}")
            picker.answered(f"r{number}", 0.1, address, status)
        assert (pick(picker, "x").outcome is Outcome.NO_CELL) is ejected


def test_what_the_gateway_turned_away_clears_nobody_either() -> None:
    picker = picker_of()
    line_up(picker, "a")
    for number, status in enumerate((503, 503, 401, 503)):
        pick(picker, f"r{number}")
        picker.answered(f"r{number}", 0.1, "", status)
    assert pick(picker, "x").outcome is Outcome.NO_CELL


def test_what_failed_teaches_nothing_of_speed() -> None:
    picker = picker_of()
    line_up(picker, "ab")
    before = picker.book.table[:, cost.S_PER_TOKEN].copy()
    for key, address, status in (("1", "a:80", 400), ("2", "b:80", 503), ("3", "", 503)):
        pick(picker, key, tokens=9000)
        picker.answered(key, 0.001, address, status)
    assert np.array_equal(picker.book.table[:, cost.S_PER_TOKEN], before)


def test_a_cell_that_left_while_its_request_was_under_way_is_nobody() -> None:
    picker = picker_of()
    line_up(picker, "a")
    pick(picker, "r")
    picker.forget("a", 0.1)
    picker.join("z", MODEL, 1.0, 0.2)
    served = picker.answered("r", 0.3, "a:80")
    assert served is not None
    assert (served.cell, served.observed_s) == ("", None)
    assert pending(picker, "z") == 0
    picker.book.check()


def test_it_stands_aside_when_a_guess_is_better_and_tries_again_later() -> None:
    picker = picker_of()
    said = ""
    line_up(picker, "a")
    # One that stays without an answer makes the queue look longer and longer, and nothing else is slow.
    pick(picker, "stuck", 0.0)
    now = 0.0
    for number in range(500):
        now += 0.1
        line_up(picker, "a", now=now)
        if pick(picker, f"r{number}", now).outcome is Outcome.RESTING:
            break
        served = picker.answered(f"r{number}", now + 0.05, "a:80")
        assert served is not None
        said = served.error or said
    assert "plain guess" in said
    line_up(picker, "a", now=now + 3600)
    assert pick(picker, "later", now + 3600).outcome is Outcome.NAMED


CELLS = st.lists(
    st.tuples(
        st.booleans(),  # READY at this moment
        st.sampled_from([1024.0, 8192.0, 32768.0, np.inf]),
        st.booleans(),  # ejected
        st.floats(0, 1),
        st.integers(0, 50_000),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=300, deadline=None)
@given(
    cells=CELLS,
    size=st.none() | st.integers(1, 400_000),
    output=st.none() | st.integers(1, 40_000),
    routed=st.none() | st.sampled_from([0, 8192, 32768]),
    session=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_never_names_one_that_is_failed_draining_too_small_or_ejected(
    cells: list[tuple[bool, float, bool, float, int]],
    size: int | None,
    output: int | None,
    routed: int | None,
    session: bool,
    seed: int,
) -> None:
    picker = picker_of(seed, tolerance=1.0, balance=10.0, fallbacks=8)
    names = [f"c{number}" for number in range(len(cells))]
    lengths = [length for _, length, *_ in cells]
    made = line_up(picker, names, lengths=lengths, rtt_s=[rtt for *_, rtt, _ in cells])
    picker.usable = lambda _: np.array([ready for ready, *_ in cells])
    for number, (_, _, ejected, _, busy) in enumerate(cells):
        slot = int(made.lineup.slots[number])
        picker.book.table[slot, cost.OTHERS] = busy
        picker.known.sessions.note(MODEL, "s", names[number], 0.0)
        if ejected:
            ejections = picker._ejections.setdefault(GATEWAY, Ejections())
            for _ in range(FAILURES):
                ejections.failed(slot, 0.0)
    wanted = ask(
        "r", size=size, output=output, routed_length=routed, session="s" if session else "", tokens=None
    )
    found = picker.pick(GATEWAY, wanted, 0.1)
    surely = (size / MOST_BYTES_PER_TOKEN if size else 0) + (output or 0)
    for cell in found.cells:
        ready, length, ejected, *_ = cells[names.index(cell)]
        assert ready
        assert not ejected
        assert length >= max(routed or 0, surely if size else 0)
        if not routed and size is not None:
            likely = size / RULE.bytes_per_token + (output or 0) + RULE.reserve_tokens
            assert length >= likely or length == max(lengths)
    assert (found.outcome in NAMING) == bool(found.cells)
