"""The control loop over a pool of small and large cells, with traffic that follows its plans."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

from headrace_controller.capability import SizeCounts, bucket_of, no_counts
from headrace_controller.control.confirmation import Question
from headrace_controller.control.keeper import Keeper
from headrace_controller.control.kept_fleet import KeptFleet, KeptFleetStore
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.projection import Endpoints, Plan
from headrace_controller.projection.plan import PLAIN
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config
from tests.support.clock import FakeClock

SETTINGS = """
gateways: [{id: g, host: 127.0.0.1}]
lifecycle: {ramp_s: 0, barrier_s: 0}
"""
TICK_S = 0.05
LENGTHS = {"small-1": 1024, "small-2": 1024, "large-1": 32768, "large-2": 32768}
BYTES_PER_TOKEN = 4.0
ENVELOPE_BYTES = 1024
# Bytes of prompt that a cell works off in a second.
RATE = 150_000.0


class Traffic:
    """Cells alike but for their length. Each works at RATE; what waits is its pressure."""

    def __init__(
        self, long_share: float, reports: bool = True, extra: str = "", kept: KeptFleet | None = None
    ) -> None:
        self.clock = FakeClock()
        self.random = Random(7)
        self.long_share = long_share
        self.plan = Plan()
        self.plans: list[tuple[float, Plan]] = []
        self.metrics = Metrics()
        self.loop = ControlLoop(
            config.parse(SETTINGS + extra, ControllerSettings), self.clock, self.metrics, self, kept
        )
        self.counts = {("m", length): no_counts() for length in set(LENGTHS.values())}
        if reports:
            self.loop.classes.sizes = self.sizes
        self.waiting = dict.fromkeys(LENGTHS, 0.0)
        self.load: Counter[str] = Counter()
        self.leaked = self.long = 0
        self.answered = dict.fromkeys(LENGTHS, 0)
        for number, (cell, length) in enumerate(LENGTHS.items()):
            facts = pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host="10.0.0.1", port=8000 + number),
                models=[pb.ModelFacts(id="m", max_model_len=length)],
            )
            self.loop.hello(pb.Hello(node=cell, site="s", incarnation=1, cells=[facts]), self.clock.now())

    def sizes(self) -> SizeCounts:
        return self.counts

    # control.loop.Outside

    def publish(self, plan: Plan) -> None:
        self.plans.append((self.clock.now(), plan))
        self.plan = plan

    def ask_engine(self, cell_id: str, question: Question, timeout_s: float) -> None:
        raise AssertionError("no agent is silent here")

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        return True

    def run(self, seconds: float, rps: float = 20.0) -> None:
        for step in range(round(seconds / TICK_S)):
            self.clock.advance(TICK_S)
            if self.plan.pools:
                for _ in range(round(rps * TICK_S)):
                    self._request()
            for cell in LENGTHS:
                self.waiting[cell] = max(0.0, self.waiting[cell] - RATE * TICK_S)
                if step % 10 == 0:
                    self._beat(cell)
                else:
                    self.loop.alive(cell, self.clock.now())
            self.loop.tick(self.clock.now())

    def load_of_the_large(self, seconds: float) -> float:
        """The large cells' share of the load over a while."""
        self.load.clear()
        self.run(seconds)
        return (self.load["large-1"] + self.load["large-2"]) / self.load.total()

    def _request(self) -> None:
        is_long = self.random.random() < self.long_share
        size = self.random.randint(6_000, 30_000) if is_long else self.random.randint(200, 1_200)
        endpoints = self._class_of(size)
        (cell,) = self.random.choices([each.cell_id for each in endpoints], endpoints.weights)
        refused = size / BYTES_PER_TOKEN > LENGTHS[cell]
        self.long += is_long
        self.leaked += refused
        self.counts["m", LENGTHS[cell]][bucket_of(size), int(refused)] += 1
        if not refused:
            self.load[cell] += size + ENVELOPE_BYTES
            self.waiting[cell] += size + ENVELOPE_BYTES
            self.answered[cell] += 1

    def _class_of(self, size: int) -> Endpoints:
        for shape, endpoints in zip(
            self.plan.shape("m").classes, self.plan.classes.get("m", ()), strict=True
        ):
            if not shape.bounds or size < shape.bounds[0].bytes_below:
                return endpoints["g"]
        return self.plan.pools["m"]["g"]

    def _beat(self, cell: str) -> None:
        full = min(1.0, self.waiting[cell] / RATE)
        beat = pb.CellBeat(
            cell_id=cell,
            engine_state=pb.ENGINE_STATE_SERVING,
            serving_ms=3_600_000,
            in_flight=1,
            signals=pb.Signals(
                queue_depth=32 * full, kv_fill=full, compute_active=full, memory_bw_util=full, ttft_p95_s=full
            ),
            requests=pb.RequestTotals(ok=self.answered[cell], client_errors=0),
        )
        path = pb.PathBeat(gateway="g", rtt_ms=1.0, jitter_ms=0.1, age_ms=0)
        self.loop.telemetry(cell, pb.Telemetry(cells=[beat], paths=[path]), self.clock.now())


def test_the_long_requests_of_the_large_cells_count_in_their_share_of_the_short_ones() -> None:
    """6 % of the requests are long, and they are 40 % of the load; the cells are equal."""
    traffic = Traffic(long_share=0.06)
    traffic.run(60.0)
    assert 0.42 < traffic.load_of_the_large(240.0) < 0.58
    assert traffic.leaked == 0


def test_without_reports_only_pressure_balances_what_classes_bring() -> None:
    """So the large cells carry their share of the short requests and all of the long ones."""
    traffic = Traffic(long_share=0.06, reports=False)
    traffic.run(60.0)
    assert 0.6 < traffic.load_of_the_large(240.0) < 0.75
    assert traffic.leaked == 0


def test_where_most_of_the_load_is_long_the_small_cells_take_the_short_requests() -> None:
    traffic = Traffic(long_share=0.3)
    traffic.run(60.0)
    small, large = traffic.plan.classes["m"]
    weights = {each.cell_id: each.weight for each in small["g"]}
    assert weights["large-1"] <= 2
    assert min(weights["small-1"], weights["small-2"]) > 50
    assert {each.cell_id for each in large["g"]} == {"large-1", "large-2"}
    traffic.run(120.0)
    assert traffic.leaked <= 0.01 * traffic.long


def test_the_weights_of_classes_settle_and_stay() -> None:
    traffic = Traffic(long_share=0.1)
    traffic.run(120.0, rps=20.0)
    plans = set()
    for _ in range(40):
        traffic.run(1.0)
        plans.add(id(traffic.plan))
    assert len(plans) <= 12


def test_no_push_moves_a_weight_of_a_class_by_more_than_the_factor() -> None:
    """Also when the mix becomes known, and over a change of the settings."""
    traffic = Traffic(long_share=0.3)
    traffic.run(1.0)
    while weights_of(traffic.plan)["large-1"] > 60:
        traffic.run(TICK_S)
        assert traffic.clock.now() - traffic.plans[0][0] < 60.0
    assert weights_of(traffic.plan)["large-1"] > 8
    changed = SETTINGS + "pressure: {smoothing_s: 0.5}\n"
    traffic.loop.use(config.parse(changed, ControllerSettings))
    traffic.run(20.0)
    at, _ = next((at, plan) for at, plan in traffic.plans if len(weights_of(plan)) == len(LENGTHS))
    plans = [weights_of(plan) for since, plan in traffic.plans if since >= at]
    for before, after in pairwise(plans):
        for cell, old in before.items():
            assert min(old / 2, old - 1) <= after[cell] <= max(old * 2, old + 1)
    assert max(plans[0].values()) / min(plans[0].values()) < 2
    assert max(plans[-1]["large-1"], plans[-1]["large-2"]) <= 2


def weights_of(plan: Plan) -> dict[str, int]:
    """The weights of the class of short requests."""
    return {each.cell_id: each.weight for each in plan.classes["m"][0]["g"]} if plan.classes else {}


def test_the_boundary_of_a_class_that_is_gone_is_forgotten() -> None:
    traffic = Traffic(long_share=0.1, extra="capability: {bytes_per_token: 1.2}\n")
    traffic.loop.fleet.retention_s = 5.0
    traffic.run(120.0)
    assert shown(traffic) is not None
    for number, cell in enumerate(("small-1", "small-2")):
        facts = pb.CellFacts(
            cell_id=cell,
            address=pb.Address(host="10.0.0.1", port=8000 + number),
            models=[pb.ModelFacts(id="m", max_model_len=32768)],
        )
        traffic.loop.hello(pb.Hello(node=cell, site="s", incarnation=2, cells=[facts]), traffic.clock.now())
    traffic.run(4.0)
    assert shown(traffic) is not None
    traffic.run(4.0)
    assert shown(traffic) is None
    assert traffic.loop.classes.records() == ()


def test_learned_boundaries_survive_a_restart(tmp_path: Path) -> None:
    traffic = Traffic(long_share=0.1)
    traffic.run(300.0)
    learned = traffic.loop.classes.guide.boundary("m", 1024).bytes_per_token
    assert learned > 1.5
    assert shown(traffic) == learned
    keeper = Keeper(KeptFleetStore(tmp_path, "default"), traffic.loop, "default")
    kept = keeper.snapshot()
    assert kept is not None
    again = KeptFleet.model_validate_json(kept.model_dump_json())
    young = Traffic(long_share=0.1, kept=again)
    assert young.loop.classes.guide.boundary("m", 1024).bytes_per_token == shown(young) == learned


def shown(traffic: Traffic) -> float | None:
    """The boundary as Prometheus gets it."""
    return traffic.metrics.registry.get_sample_value(
        "headrace_class_bytes_per_token", {"model": "m", "max_model_len": "1024"}
    )


def test_classes_can_be_switched_off() -> None:
    traffic = Traffic(long_share=0.0, extra="capability: {classes: false}\n")
    traffic.run(2.0)
    assert traffic.plan.shape("m").classes == PLAIN.classes
    assert not traffic.plan.classes
    assert len(traffic.plan.pools["m"]["g"]) == 4
