"""The slow loop bounds the fast one: who may be named, at the very moment."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headrace_controller.control.picking import Picking
from headrace_controller.picker import cost
from headrace_controller.picker.guards import REST_S, WINDOW
from headrace_controller.picker.picker import MAX_AGE_S
from headrace_controller.picker.requests import Ask, Outcome, Pick
from headrace_controller.picker.view import UNANSWERED
from headrace_controller.projection import Intents
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.support.clock import FakeClock
from tests.unit.controller.control.region import Region


class Picked(Region):
    """A region with a picker, and a cell a node."""

    def __init__(self, *cells: str, more: str = "") -> None:
        super().__init__(f"picker: {{enabled: true, trickle: 0, tolerance: 0}}\n{more}")
        self.registry, self.said = CollectorRegistry(), list[str]()
        self.picking = Picking(
            self.settings,
            self.clock,
            self.loop.fleet,
            self.registry,
            on_standing=lambda said, _: self.said.append(said),
        )
        self.loop.witnesses.append(self.picking.feed)
        self.ports: dict[str, int] = {}
        self.asked = 0
        for cell in cells:
            self.join(cell)
        self.round()

    def join(
        self,
        cell: str,
        length: int = 4096,
        host: str = "127.0.0.1",
        gpu: str = "",
        engine: str = "vllm",
        model: str = "m",
        adapter: str = "",
    ) -> None:
        self.ports.setdefault(cell, max(self.ports.values(), default=7999) + 1)
        facts = pb.CellFacts(
            cell_id=cell,
            address=pb.Address(host=host, port=self.ports[cell]),
            engine_kind=engine,
            models=[pb.ModelFacts(id=each, max_model_len=length) for each in (model, adapter) if each],
            gpus=[pb.GpuFacts(uuid=cell, name=gpu)] if gpu else [],
        )
        hello = pb.Hello(node=f"n-{cell}", site="s", incarnation=1, cells=[facts])
        self.loop.hello(hello, self.clock.now())

    def round(self, times: int = 3, **figures: Any) -> None:
        """Beats of all cells and a tick."""
        for _ in range(times):
            for cell in self.ports:
                self.tell(cell, **figures)
            self.tick()

    def tell(self, cell: str, rtt_ms: float = 5.0, **figures: Any) -> None:
        waiting = figures.pop("waiting", 0)
        beat = pb.CellBeat(
            cell_id=cell,
            engine_state=pb.ENGINE_STATE_SERVING,
            serving_ms=600_000,
            signals=pb.Signals(queue_depth=waiting, kv_fill=0.1, compute_active=0.1, memory_bw_util=0.1),
            sources=[pb.SourceBeat(name="engine", status=pb.SOURCE_STATUS_OK, age_ms=0)],
            **figures,
        )
        path = pb.PathBeat(gateway="gw-1", rtt_ms=rtt_ms, jitter_ms=0.0, loss=0.0, age_ms=0)
        now = self.clock.now()
        self.loop.telemetry(f"n-{cell}", pb.Telemetry(cells=[beat], paths=[path]), now)
        self.loop.alive(f"n-{cell}", now)

    def pick(self, gateway: str = "gw-1", **more: Any) -> Pick:
        self.asked += 1
        asks = {"tokens": 100, "routed_length": 0, **more}
        return self.picking.picker.pick(gateway, Ask(f"r{self.asked}", "m", **asks), self.clock.now())

    def named(self, times: int = 30, **more: Any) -> set[str]:
        """All who are named by so many picks, for retries too."""
        return {cell for _ in range(times) for cell in self.pick(**more).cells}


def test_ready_cells_are_named_by_the_addresses_that_envoy_holds() -> None:
    region = Picked("a", "b")
    region.join("odd", host="not-an-ip")
    region.round()
    assert region.named() == {"a", "b"}
    assert set(region.pick().addresses) == {"127.0.0.1:8000", "127.0.0.1:8001"}


def test_a_cell_that_fails_is_not_named_from_that_moment_on() -> None:
    region = Picked("a", "b")
    event = pb.CellEvent(cell_id="a", kind=pb.CELL_EVENT_KIND_ENGINE_DOWN, cause="exit", event_id=1)
    region.loop.event("n-a", event, region.clock.now())
    # No tick has been.
    assert region.named() == {"b"}


def test_a_draining_cell_is_not_named_and_comes_back() -> None:
    region = Picked("a", "b")
    region.loop.drain("a", "new driver", None)
    assert region.named() == {"b"}
    region.loop.undrain("a", "done")
    region.round()
    assert region.named() == {"a", "b"}


def test_a_silent_node_is_not_named() -> None:
    region = Picked("a", "b", more="")
    region.loop.book.use(region.settings.lifecycle.model_copy(update={"on_silence": "fail"}))
    for _ in range(12):
        region.tell("b")
        region.tick()
    assert region.named() == {"b"}


def test_operators_bound_it() -> None:
    region = Picked("a", "b")
    for overrides in ({"a": 1, "b": 50}, {"a": 1}):
        region.loop.intents = Intents(overrides=overrides)
        region.round()
        assert {region.pick(session=str(n)).cells[0] for n in range(3)} == {"b"}
    region.loop.intents = Intents(pins={"m": frozenset({"elsewhere"})})
    region.round()
    assert region.pick().outcome is Outcome.NO_CELL
    region.loop.intents = Intents(shadow=True)
    region.round()
    assert region.pick() == Pick(Outcome.OFF)
    assert region.picking.feed.status().said.startswith("shadow")
    region.loop.intents = Intents()
    region.round()
    assert region.named() == {"a", "b"}


def test_an_operator_switches_it_off_and_on() -> None:
    region = Picked("a")
    region.loop.intents = Intents(picker_off=True)
    assert region.pick().outcome is Outcome.OFF
    status = region.picking.feed.status()
    assert (status.on, status.naming, status.said) == (False, False, "switched off by an operator")
    region.loop.intents = Intents()
    assert region.pick().outcome is Outcome.NAMED
    assert region.picking.feed.status().naming


def test_small_cells_get_nothing_that_is_too_long() -> None:
    region = Picked()
    region.join("small", length=4096)
    region.join("large", length=32768)
    region.round()
    assert region.named(tokens=3000) == {"small", "large"}
    assert region.named(tokens=9000) == {"large"}
    assert region.named(tokens=3000, output=2000) == {"large"}
    region.loop.drain("large", "x", None)
    assert region.pick(tokens=9000).outcome is Outcome.NO_CELL
    region.round()
    assert region.pick(tokens=9000).outcome is Outcome.NO_CELL


def test_what_engines_say_moves_it_within_a_beat() -> None:
    """Another controller has filled a."""
    region = Picked("a", "b")
    region.tell("a", waiting=40, in_flight=60)
    region.tell("b", waiting=0, in_flight=1)
    assert {region.pick().cells[0] for _ in range(20)} == {"b"}


def test_a_prompt_of_others_shows_by_what_answers_beside_it_do_not_generate() -> None:
    """Nobody waits anywhere, and as many run; c counts tokens only when an answer ends."""
    region = Picked("a", "b")
    region.join("c", engine="sglang")
    region.round()
    for step in range(1, 12):
        region.tick()
        for cell, each in (("a", 20 * step), ("b", 20 * min(step, 8)), ("c", 20 * min(step, 8))):
            region.tell(cell, in_flight=4, work=pb.WorkTotals(generated_tokens=each))
    table, slots = region.picking.picker.book.table, region.picking.picker.book.cells()
    met = region.picking.picker.known.sizes.met_tokens("m")
    assert [table[slots[cell], cost.OTHERS] for cell in "abc"] == [0.0, met, 0.0]
    assert "b" not in {region.pick().cells[0] for _ in range(4)}


def test_a_controller_that_starts_anew_goes_by_engines_figures() -> None:
    """Its book is empty; what an earlier one has sent is in the engines' queues."""
    region = Picked()
    for cell in "ab":
        region.join(cell)
    for _ in range(3):
        region.tell("a", waiting=12, in_flight=20)
        region.tell("b")
        region.tick()
    table, slots = region.picking.picker.book.table, region.picking.picker.book.cells()
    assert table[slots["a"], cost.OTHERS] == 13 * region.picking.picker.known.sizes.met_tokens("m")
    assert table[slots["a"], cost.RUNNING] == 20
    assert region.picking.picker.book.open_requests == 0
    assert {region.pick().cells[0] for _ in range(5)} == {"b"}


def test_what_a_cell_said_before_it_was_lined_up_counts_at_the_first_pick() -> None:
    """Between the tick that lines it up and its next beat a quarter of a second passes."""
    region = Picked()
    for cell in "ab":
        region.join(cell)
    for _ in range(5):
        region.tell("a", waiting=40, in_flight=60)
        region.tell("b")
        assert region.picking.picker.book.get("a") is None, "it was lined up before"
        region.tick()
        if first := region.pick().cells:
            break
    assert region.picking.picker.book.get("a") is not None, "it is not lined up"
    assert {first[0], *(region.pick().cells[0] for _ in range(5))} == {"b"}


def test_a_cell_that_comes_back_with_another_model_is_judged_by_the_prompts_of_that() -> None:
    region = Picked("a", "b")
    sizes = region.picking.picker.known.sizes
    for _ in range(50):
        sizes.note("n", 9000)
    region.join("a", model="n")
    region.round()
    region.tell("a", waiting=3, in_flight=9)
    table, slots = region.picking.picker.book.table, region.picking.picker.book.cells()
    assert table[slots["a"], cost.OTHERS] == 4 * sizes.met_tokens("n") > 4 * sizes.met_tokens("m")
    # An adapter that is loaded beside it, and comes first by its name, changes nothing.
    region.join("a", model="n", adapter="a-first")
    region.round()
    region.tell("a", waiting=3, in_flight=9)
    assert table[slots["a"], cost.OTHERS] == 4 * sizes.met_tokens("n")


def test_it_says_when_it_stands_aside_and_when_it_is_back() -> None:
    region = Picked("a", "b")
    guard = region.picking.picker.known.guard
    for _ in range(WINDOW):
        guard.took(1.0, region.clock.now())
    assert region.pick().outcome is Outcome.RESTING
    region.round(1)
    assert "took longer than" in region.said[-1]
    assert sampled(region, "headrace_picker_naming") == 0
    assert sampled(region, "headrace_picker_rests_total", reason="slow") == 1
    region.clock.advance(REST_S)
    region.round()
    assert region.said[-1] == ""
    assert region.pick().outcome is Outcome.NAMED
    assert sampled(region, "headrace_picker_naming") == 1
    region.loop.intents = Intents(picker_off=True)
    region.round(1)
    assert region.said[-1] == "switched off by an operator"
    assert sampled(region, "headrace_picker_rests_total", reason="slow") == 1
    assert len(region.said) == 4, "once for each change"


def test_what_is_left_to_the_weights_is_no_answer_of_another_than_the_named() -> None:
    region = Picked("a", "b", more="")
    region.picking.picker._settings = region.settings.picker.model_copy(update={"trickle": 1.0})
    served = region.picking.service._hooks.on_served

    def answered(by: str) -> None:
        found = region.picking.picker.answered(f"r{region.asked}", region.clock.now() + 0.1, by)
        assert found is not None
        served(found)

    assert region.pick().outcome is Outcome.LEFT
    answered("127.0.0.1:8000")
    assert sampled(region, "headrace_picks_served_total", by="other") == 0
    region.picking.picker._settings = region.settings.picker
    named, other, *_ = region.pick().addresses
    answered(named)
    region.pick()
    answered("127.0.0.1:9999")
    assert named != other
    assert sampled(region, "headrace_picks_served_total", by="named") == 1
    assert sampled(region, "headrace_picks_served_total", by="other") == 1


def sampled(region: Picked, name: str, **labels: str) -> float | None:
    return region.registry.get_sample_value(name, labels)


def test_far_cells_are_named_less_and_those_out_of_reach_never() -> None:
    region = Picked("a", "b")
    for _ in range(3):
        region.tell("a", rtt_ms=200.0)
        region.tell("b", rtt_ms=2.0)
        region.tick()
    assert region.pick().cells[0] == "b"
    row = region.loop.fleet.row("b")
    region.loop.fleet.loss[row, 0] = 1.0
    region.tick(0.3)
    assert region.named() == {"a"}
    assert "b" in region.named(gateway="gw-2")


def test_who_does_not_answer_a_gateway_is_not_named_there() -> None:
    region = Picked("a", "b")
    fleet, row = region.loop.fleet, region.loop.fleet.row("a")
    fleet.unanswered[row, 0], fleet.unanswered_at[row, 0] = UNANSWERED, region.clock.now()
    region.tick(0.3)
    assert region.named() == {"b"}
    # Another one's path is another.
    assert "a" in region.named(gateway="gw-2")


def test_what_came_to_no_answer_before_a_cell_was_ready_is_not_held_against_it() -> None:
    region = Picked("a", "b")
    fleet, row = region.loop.fleet, region.loop.fleet.row("a")
    fleet.unanswered[row, 0] = UNANSWERED
    fleet.unanswered_at[row, 0] = fleet.state_since[row] - 0.1
    region.tick(0.3)
    assert region.named() == {"a", "b"}


def test_a_loop_that_stands_still_makes_picks_stale() -> None:
    region = Picked("a")
    region.clock.advance(1.01)
    assert region.pick().outcome is Outcome.STALE
    region.round()
    assert region.pick().outcome is Outcome.NAMED


def test_it_does_not_say_that_it_names_cells_by_a_stale_picture() -> None:
    region = Picked("a")
    naming, told = [], list(region.said)
    for seconds in (0.0, MAX_AGE_S, 0.01):
        region.clock.advance(seconds)
        status = region.picking.feed.status()
        naming.append((status.naming, sampled(region, "headrace_picker_naming")))
        assert bool(status.said) is not status.naming
    assert naming == [(True, 1), (True, 1), (False, 0)]
    assert "no picture of the fleet" in region.picking.feed.status().said
    region.round()
    assert region.picking.feed.status().naming
    assert sampled(region, "headrace_picker_naming") == 1
    assert region.said == told, "there is no event for each"


def test_slow_publications_leave_the_picture_fresh_while_cells_join() -> None:
    region, took_s = Picked("a"), 0.3
    region.publish = lambda plan: region.clock.advance(took_s)  # type: ignore[method-assign, assignment]
    for number in range(10):
        region.join(f"j{number}")
        for _ in range(5):
            assert region.pick().outcome is Outcome.NAMED
            for cell in region.ports:
                region.tell(cell)
            region.tick(region.settings.cadence.tick_s)


def test_before_the_first_picture_it_names_nobody() -> None:
    clock, registry = FakeClock(), CollectorRegistry()
    region = Region("picker: {enabled: true}\n", clock)
    picking = Picking(region.settings, clock, region.loop.fleet, registry)
    assert not picking.feed.status().naming
    assert registry.get_sample_value("headrace_picker_naming") == 0


def test_a_forgotten_cell_leaves_nothing_behind() -> None:
    region = Picked("a", "b", more="")
    picker = region.picking.picker
    slot = picker.book.get("a")
    for _ in range(10):
        region.pick()
    region.loop.fleet.remove("a")
    region.picking.feed.forgotten("a", region.clock.now())
    del region.ports["a"]
    region.round()
    assert region.named() == {"b"}
    region.join("c")
    region.round()
    assert picker.book.get("c") == slot
    assert picker.book.table[slot, cost.PENDING] == 0
    picker.book.check()


def test_gpus_say_where_learning_starts() -> None:
    region = Picked()
    region.join("fast", gpu="NVIDIA H200")
    region.join("slow", gpu="Tesla T4")
    region.round()
    table = region.picking.picker.book.table
    rates = [table[region.picking.picker.book.get(cell), cost.S_PER_TOKEN] for cell in ("slow", "fast")]
    assert rates[0] / rates[1] == pytest.approx(989 / 65)


def test_beats_tell_what_engines_computed_and_found_in_their_caches() -> None:
    region = Picked("a")
    blocks = tuple(range(8))

    def work(prompt: int, cached: int) -> pb.WorkTotals:
        return pb.WorkTotals(prompt_tokens=prompt, cached_tokens=cached)

    region.round(work=work(10_000, 2_000))
    assert region.picking.feed.status().cache_found is None
    for _ in range(4):
        pick = region.pick(tokens=4000, blocks=blocks)
        region.picking.picker.answered(f"r{region.asked}", region.clock.now() + 0.1, pick.addresses[0])
    region.round(1, work=work(26_000, 8_000))
    found = region.picking.feed.status().cache_found
    assert found is not None
    assert found == pytest.approx(0.5, abs=0.02)
    assert region.registry.get_sample_value("headrace_pick_cache_found_ratio") == pytest.approx(found)


def test_engines_queues_teach_speeds_where_no_first_token_is_seen() -> None:
    region = Picked("a", "b")
    slot = region.picking.picker.book.get("a")
    assert slot is not None
    before = region.picking.picker.book.table[slot, cost.S_PER_TOKEN]
    # 100 tokens a beat of 0.2 s: 500 a second.
    for step in range(1, 200):
        region.round(1, waiting=3, in_flight=4, work=pb.WorkTotals(prompt_tokens=100 * step))
    after = region.picking.picker.book.table[slot, cost.S_PER_TOKEN]
    assert after > 4 * before
