"""Reports find their cell, become evidence, and decide about the engines of silent agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from headrace_controller.capability import SizeCounts
from headrace_controller.capability.sizes import bucket_of
from headrace_controller.control import gateway_reports
from headrace_controller.control.gateway_reports import PRUNE_INTERVAL_S
from headrace_controller.gateway.loads import Load
from headrace_controller.gateway.records import Outcome, Record
from headrace_controller.inventory.columns import NEVER
from headrace_controller.lifecycle import Answer, CellState
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.control.region import Region

OK, CLIENT, THROTTLED, SERVER = range(4)
C1, C2 = "10.0.0.1:8000", "10.0.0.2:8000"


@pytest.fixture
def region() -> Region:
    """c1 and c2 are READY, each at an address of its own."""
    made = Region()
    for number, cell in enumerate(("c1", "c2"), 1):
        facts = pb.CellFacts(
            cell_id=cell,
            address=pb.Address(host=f"10.0.0.{number}", port=8000),
            models=[pb.ModelFacts(id="m", max_model_len=4096)],
        )
        hello = pb.Hello(node=f"n{number}", site="s", incarnation=1, cells=[facts])
        made.loop.hello(hello, made.clock.now())
        made.beat(cell, node=f"n{number}")
    made.tick()
    return made


def record(outcome: Outcome, upstream: str = C1, **more: Any) -> Record:
    status = {Outcome.OK: 200, Outcome.CLIENT_ERROR: 400, Outcome.THROTTLED: 429}.get(outcome, 503)
    return Record(outcome, upstream, "pool/m", **{"status": status, "client": "k", **more})


def report(region: Region, *records: Record, alone: bool = False, each: int = 1) -> None:
    region.loop.reports.requests("gw-1", records, each, alone)


def evidence(region: Region, cell: str = "c1") -> list[float]:
    fleet = region.loop.fleet
    return fleet.gateway_evidence[fleet.row(cell)].tolist()


def test_each_outcome_goes_to_its_cell(region: Region) -> None:
    report(
        region,
        record(Outcome.OK),
        record(Outcome.CLIENT_ERROR),
        record(Outcome.SERVER_ERROR),
        record(Outcome.CANCELLED),
        record(Outcome.OK, C2),
    )
    assert evidence(region) == [1, 1, 0, 1]
    assert evidence(region, "c2") == [1, 0, 0, 0]
    counts = region.loop.reports.cell("c1")["gw-1"].counts
    assert counts == {
        "ok": 1, "client_errors": 1, "throttled": 0, "server_errors": 1, "cancelled": 1, "unrouted": 0,
    }  # fmt: skip


def test_an_address_that_no_cell_has_is_nobodys(region: Region) -> None:
    report(region, record(Outcome.SERVER_ERROR, "10.9.9.9:1"), Record(Outcome.UNROUTED, status=404))
    assert evidence(region) == [0, 0, 0, 0]
    counts = region.loop.reports.accounts()["gw-1"][""].counts
    assert counts[Outcome.SERVER_ERROR] == counts[Outcome.UNROUTED] == 1


def test_a_cell_that_moved_is_found_at_its_new_address(region: Region) -> None:
    report(region, record(Outcome.OK))
    facts = pb.CellFacts(
        cell_id="c1", address=pb.Address(host="10.0.0.7", port=9), models=[pb.ModelFacts(id="m")]
    )
    hello = pb.Hello(node="n1", site="s", incarnation=2, cells=[facts])
    region.loop.hello(hello, region.clock.now())
    report(region, record(Outcome.SERVER_ERROR), record(Outcome.OK, "10.0.0.7:9"))
    assert evidence(region) == [2, 0, 0, 0]


def test_a_broken_request_counts_by_the_log_of_tries_where_there_is_one(region: Region) -> None:
    broken = record(Outcome.SERVER_ERROR, broken=True)
    report(region, broken)
    assert evidence(region) == [0, 0, 0, 0]
    region.loop.reports.tries("gw-1", [broken], 1)
    assert evidence(region) == [0, 0, 0, 1]
    report(region, broken, alone=True)
    assert evidence(region) == [0, 0, 0, 2]


def test_a_try_that_the_client_gave_up_counts_nothing(region: Region) -> None:
    region.loop.reports.tries("gw-1", [record(Outcome.CANCELLED, broken=True)], 1)
    assert evidence(region) == [0, 0, 0, 0]


def test_sampling_is_made_up_for_in_counts_and_not_in_evidence(region: Region) -> None:
    report(region, record(Outcome.OK), each=7)
    assert region.loop.reports.cell("c1")["gw-1"].counts["ok"] == 7
    assert evidence(region) == [1, 0, 0, 0]


def test_failed_tries_count_beside_sampled_requests_as_much_as_these(region: Region) -> None:
    """Of 100 requests, 10 of them failed tries, a tenth is read: the share that failed stays a tenth."""
    broken = record(Outcome.SERVER_ERROR, broken=True)
    report(region, *[record(Outcome.OK)] * 9, each=10)
    region.loop.reports.tries("gw-1", [broken] * 10, 0.1)
    assert evidence(region) == pytest.approx([9, 0, 0, 1])
    assert region.loop.reports.cell("c1")["gw-1"].failed_tries == 10


def test_a_client_that_is_refused_everywhere_charges_nobody(region: Region) -> None:
    for _ in range(100):
        report(region, record(Outcome.CLIENT_ERROR), record(Outcome.CLIENT_ERROR, C2))
    for cell in ("c1", "c2"):
        assert evidence(region, cell)[CLIENT] <= 6
        assert sum(evidence(region, cell)) == pytest.approx(100)


def test_sizes_are_those_that_the_cell_took_or_refused(region: Region) -> None:
    report(
        region,
        record(Outcome.OK, request_bytes=1000),
        record(Outcome.CLIENT_ERROR, request_bytes=9000),
        record(Outcome.CLIENT_ERROR, request_bytes=9000, status=413),
        record(Outcome.CLIENT_ERROR, request_bytes=9000, status=404),
        record(Outcome.THROTTLED, request_bytes=9000),
        record(Outcome.OK, request_bytes=0),
    )
    sizes: SizeCounts = region.loop.classes.sizes()
    (counts,) = sizes.values()
    assert set(sizes) == {("m", 4096)}
    assert counts[bucket_of(1000)].tolist() == [1, 0]
    assert counts[bucket_of(9000)].tolist() == [0, 2]
    assert counts.sum() == 3


def grow(region: Region, length: int) -> None:
    """The engine of c1 is started anew with another length, and answers a request."""
    facts = pb.CellFacts(
        cell_id="c1",
        address=pb.Address(host="10.0.0.1", port=8000),
        models=[pb.ModelFacts(id="m", max_model_len=length)],
    )
    region.loop.hello(pb.Hello(node="n1", site="s", incarnation=length, cells=[facts]), region.clock.now())
    report(region, record(Outcome.OK, request_bytes=100))


def test_sizes_of_a_length_that_no_cell_has_are_forgotten_after_the_retention(region: Region) -> None:
    report(region, record(Outcome.OK, C2, request_bytes=100))
    grow(region, 8192)
    grow(region, 16384)
    retention = region.settings.lifecycle.retention_s
    region.tick(retention - 1.0)
    assert set(region.loop.reports.sizes()) == {("m", 4096), ("m", 8192), ("m", 16384)}
    # c2 has had no request for as long, and its length is still there.
    region.tick(PRUNE_INTERVAL_S)
    assert set(region.loop.reports.sizes()) == {("m", 4096), ("m", 16384)}


def test_more_lengths_than_are_counted_are_refused_aloud(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> float | None:
        return region.metrics.registry.get_sample_value("headrace_class_sizes_refused_total")

    monkeypatch.setattr(gateway_reports, "MAX_SIZES", 2)
    assert refused() == 0.0
    with capture_logs() as lines:
        for length in (1024, 2048, 3072, 5120):
            grow(region, length)
    assert set(region.loop.reports.sizes()) == {("m", 1024), ("m", 2048)}
    assert refused() == 2.0
    (line,) = [each for each in lines if "too many lengths" in each["event"]]
    assert (line["log_level"], line["model"], line["max_model_len"]) == ("warning", "m", 3072)
    # Lengths that are gone make room for those that are there.
    region.tick(region.settings.lifecycle.retention_s + PRUNE_INTERVAL_S)
    grow(region, 6144)
    assert set(region.loop.reports.sizes()) == {("m", 6144)}
    assert refused() == 2.0


def test_loads_replace_the_ones_before_of_the_same_envoy(region: Region) -> None:
    reports = region.loop.reports
    reports.loads("gw-1", 1, [Load(C1, 5, 3), Load(C1, 1, 1), Load(C2, 1, 1), Load("10.9.9.9:1", 9, 9)])
    reports.loads("gw-1", 2, [Load(C1, 1, 1)])
    assert (reports.cell("c1")["gw-1"].issued, reports.cell("c1")["gw-1"].in_progress) == (7, 5)
    reports.loads("gw-1", 1, [Load(C2, 1, 2)])
    assert reports.cell("c1")["gw-1"].in_progress == 1
    assert reports.cell("c2")["gw-1"].in_progress == 2
    reports.source_ended("gw-1", 1)
    assert reports.cell("c2")["gw-1"].in_progress == 0


def test_a_cell_that_is_gone_is_forgotten(region: Region) -> None:
    report(region, record(Outcome.OK))
    region.loop.reports.loads("gw-1", 1, [Load(C1, 1, 1)])
    region.loop.fleet.remove("c1")
    region.loop.reports.forget("c1")
    assert region.loop.reports.cell("c1") == {}
    report(region, record(Outcome.OK))
    region.loop.reports.source_ended("gw-1", 1)


def test_without_any_log_agents_are_believed_at_once(region: Region) -> None:
    reports, fleet = region.loop.reports, region.loop.fleet
    reports.streams("gw-1", "access_log", 1)
    reports.streams("gw-2", "access_log", 1)
    report(region, record(Outcome.OK))
    reports.streams("gw-1", "access_log", 0)
    assert fleet.gateway_told_at[fleet.row("c1")] > NEVER
    reports.streams("gw-2", "access_log", 0)
    assert fleet.gateway_told_at[fleet.row("c1")] == NEVER


def test_what_came_after_the_silence_began_decides(region: Region) -> None:
    reports, now = region.loop.reports, region.clock.now
    report(region, record(Outcome.OK))
    assert reports.answer_of("c1", now()) is None
    region.clock.advance(1.0)
    assert reports.answer_of("c1", now()) is None
    report(region, record(Outcome.OK))
    assert _answer(region) is Answer.ALIVE
    region.clock.advance(2.0)
    assert reports.answer_of("c1", now()) is None
    refused = record(Outcome.SERVER_ERROR, broken=True, refused=True)
    reports.tries("gw-1", [refused, refused], 1)
    assert reports.answer_of("c1", now()) is None
    reports.tries("gw-1", [refused], 1)
    assert _answer(region) is Answer.DEAD
    report(region, record(Outcome.OK))
    assert _answer(region) is Answer.ALIVE
    assert reports.answer_of("unknown", now()) is None


@pytest.mark.parametrize("outcome", [Outcome.SERVER_ERROR, Outcome.CANCELLED])
def test_what_is_no_answer_shows_no_life(region: Region, outcome: Outcome) -> None:
    region.clock.advance(1.0)
    report(region, record(outcome))
    assert region.loop.reports.answer_of("c1", region.clock.now()) is None


def test_tries_without_an_answer_are_held_against_a_cell_at_their_gateway_alone(region: Region) -> None:
    reports, fleet = region.loop.reports, region.loop.fleet
    row = fleet.row("c1")
    refused = record(Outcome.SERVER_ERROR, broken=True, refused=True)
    cut_off = record(Outcome.SERVER_ERROR, status=200, broken=True)
    reports.tries("gw-1", [refused, cut_off, record(Outcome.CANCELLED, broken=True)], 1)
    assert fleet.unanswered[row].tolist() == [2, 0]
    assert fleet.unanswered_at[row].tolist() == [region.clock.now(), NEVER]
    reports.requests("gw-2", [record(Outcome.OK)], 1, False)
    assert fleet.unanswered[row].tolist() == [2, 0]
    report(region, record(Outcome.CLIENT_ERROR))
    assert fleet.unanswered[row].tolist() == [0, 0]


def _answer(region: Region) -> Answer:
    told = region.loop.reports.answer_of("c1", region.clock.now())
    assert told is not None
    return told[0]


def test_a_silent_cell_that_gateways_reach_keeps_its_weight(region: Region) -> None:
    loop = region.loop
    region.clock.advance(1.0)
    report(region, record(Outcome.OK))
    for _ in range(3):
        loop.answered("c1", Answer.NO_ANSWER, "cut off")
    assert loop.book.life("c1").state is CellState.READY
    assert loop.book.life("c1").telemetry_lost
    for _ in range(3):
        loop.answered("c2", Answer.NO_ANSWER, "cut off")
    assert loop.book.life("c2").state is CellState.FAILED


def test_an_engine_that_refuses_the_controller_is_dead_whatever_gateways_saw(region: Region) -> None:
    region.clock.advance(1.0)
    report(region, record(Outcome.OK))
    region.loop.answered("c1", Answer.DEAD, "refused")
    assert region.loop.book.life("c1").state is CellState.FAILED


def test_the_metrics_page_tells_what_gateways_saw(region: Region) -> None:
    report(region, record(Outcome.OK), record(Outcome.CLIENT_ERROR), Record(Outcome.UNROUTED, status=404))
    region.loop.reports.loads("gw-1", 1, [Load(C1, 2, 1)])
    text = "".join(region.desk.surface.gauges.slices())
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name.startswith("headrace_gateway_requests")
    }
    assert samples == {
        ("headrace_gateway_requests_total", "gw-1", "", "unrouted"): 1,
        ("headrace_gateway_requests_total", "gw-1", "c1", "ok"): 1,
        ("headrace_gateway_requests_total", "gw-1", "c1", "client_errors"): 1,
        ("headrace_gateway_requests_total", "gw-1", "c1", "server_errors"): 0,
        ("headrace_gateway_requests_total", "gw-2", "", "unrouted"): 0,
        ("headrace_gateway_requests_in_progress", "gw-1", "c1"): 1,
    }


def test_in_an_outage_of_the_controllers_network_gateways_decide_cell_by_cell() -> None:
    region = Region()
    for number, cell in enumerate(("c1", "c2", "c3", "c4"), 1):
        facts = pb.CellFacts(
            cell_id=cell,
            address=pb.Address(host=f"10.0.0.{number}", port=8000),
            models=[pb.ModelFacts(id="m")],
        )
        hello = pb.Hello(node=f"n{number}", site="s", incarnation=1, cells=[facts])
        region.loop.hello(hello, region.clock.now())
        region.beat(cell, node=f"n{number}")
    region.tick()
    region.tick(0.6)
    assert region.loop.self_preservation
    refused = record(Outcome.SERVER_ERROR, C2, broken=True, refused=True)
    report(region, record(Outcome.OK))
    region.loop.reports.tries("gw-1", [refused] * 3, 1)
    for cell in ("c1", "c2", "c3", "c4"):
        region.loop.answered(cell, Answer.NO_ANSWER, "cut off")
    states = {cell: region.loop.book.life(cell).state.name for cell in ("c1", "c2", "c3", "c4")}
    assert states == {"c1": "READY", "c2": "FAILED", "c3": "READY", "c4": "READY"}


def test_a_silent_agents_cell_loses_its_weight_to_what_gateways_see(region: Region) -> None:
    """Its weight is held against the age of its figures, not against its failures."""
    loop = region.loop
    clients = [f"k{number}" for number in range(5)]
    for client in clients * 20:
        report(region, record(Outcome.OK, client=client), record(Outcome.OK, C2, client=client))
    region.tick()
    region.clock.advance(1.0)
    report(region, record(Outcome.OK))
    loop.answered("c1", Answer.NO_ANSWER, "cut off")
    assert loop.book.life("c1").telemetry_lost
    before = loop.weights_of("c1")["gw-1"]
    for _ in range(20):
        for client in clients:
            report(region, record(Outcome.CLIENT_ERROR, client=client), record(Outcome.OK, C2, client=client))
        region.beat("c2", node="n2")
        region.tick(1.0)
        loop.reports.requests("gw-1", [record(Outcome.CLIENT_ERROR, client="k0")], 1, False)
        loop.answered("c1", Answer.ALIVE, "by another way")
    assert loop.book.life("c1").state is CellState.READY
    assert loop.weights_of("c1")["gw-1"] < before / 10
    explained = loop.explain("c1", "gw-1")
    assert explained is not None
    assert explained.error.source == "gateways"


def test_a_pool_that_the_cell_is_not_in_is_not_remembered(region: Region) -> None:
    for number in range(50):
        made = record(Outcome.OK, request_bytes=100)._replace(cluster=f"pool/{number}")
        report(region, made)
    assert evidence(region)[OK] == 50
    assert region.loop.reports.sizes() == {}
    assert region.loop.reports._clients._pools.keys() == {""}


RECORDS = st.builds(
    Record,
    outcome=st.sampled_from(Outcome),
    upstream=st.sampled_from(["", C1, C2, "10.9.9.9:1"]),
    cluster=st.sampled_from(["", "pool/m", "pool/other", "class/9/m"]),
    status=st.integers(0, 999),
    client=st.sampled_from(["", "k1", "k2"]),
    request_bytes=st.integers(0, 1 << 40),
    first_byte_s=st.none() | st.floats(0, 1e6),
    last_byte_s=st.none() | st.floats(0, 1e6),
    streamed=st.booleans(),
    broken=st.booleans(),
    refused=st.booleans(),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(RECORDS, st.booleans(), st.integers(1, 50)), max_size=40))
def test_no_report_leads_evidence_out_of_bounds(told: list[tuple[Record, bool, int]]) -> None:
    region = Region()
    region.connect("c1")
    region.tick()
    region.beat("c1")
    before = np.zeros(4)
    for number, (each, alone, count) in enumerate(told):
        made = each._replace(upstream="127.0.0.1:8000") if number % 2 else each
        report(region, made, alone=alone, each=count)
        after = np.array(evidence(region))
        assert (after >= before).all()
        assert after.sum() - before.sum() <= 1.0 + 1e-9
        before = after
    region.tick()
    assert region.loop.weights_of("c1")["gw-1"] >= 1
