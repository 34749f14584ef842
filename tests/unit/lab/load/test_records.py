"""What counts as good, and the figures over many requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace_lab.load.driver import Target, error_text
from headrace_lab.load.records import Record, write_ndjson
from headrace_lab.load.report import faults
from headrace_lab.load.summary import arm, per_cell, percentiles, success_rate
from tests.unit.lab.load.making import record


def test_a_cut_off_200_is_a_failure() -> None:
    """A streaming engine sends its headers first, so one that dies leaves a 200 without an end."""
    assert record().ok
    assert not record(done=False).ok
    assert not record(status=503).ok
    assert not record(error="the stream said so").ok


def test_ndjson_has_one_object_a_line_in_order_of_sending(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    write_ndjson(path, [record(id=2), record(id=1, ttft_ms=None, error="Ω")])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["id"] for line in lines] == [1, 2]
    assert lines[0]["ttft_ms"] is None
    assert lines[0]["error"] == "Ω"
    fields = {"id", "sent_s", "kind", "model", "prompt_bytes", "max_tokens", "status", "cell", "ttft_ms"}
    assert fields | {"e2e_ms", "done", "error"} <= set(lines[0])


def test_percentiles() -> None:
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}
    assert percentiles([float(i) for i in range(101)]) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}


def test_no_request_is_no_success_rate() -> None:
    """Nothing sent must not read as perfect, nor as total failure."""
    assert success_rate([]) is None
    assert success_rate([record(), record(status=500)]) == 0.5


def test_shares_leave_out_what_no_cell_answered() -> None:
    records = [record(cell="a"), record(cell="a", status=500), record(cell="b"), record(cell="", status=0)]
    found = per_cell(records, ["a", "b", "c"])
    assert found["a"] == {"requests": 2, "share": pytest.approx(2 / 3, abs=1e-4), "errors": 1}
    assert found["c"] == {"requests": 0, "share": 0.0, "errors": 0}


def test_latencies_are_those_of_good_requests_only() -> None:
    """A fast failure must not improve the latency figures."""
    figures = arm([record(e2e_ms=100.0, ttft_ms=10.0), record(status=503, e2e_ms=1.0, ttft_ms=None)], ["a"])
    assert figures["requests"] == 2
    assert figures["success_rate"] == 0.5
    assert figures["e2e_ms"]["p50"] == 100.0
    assert figures["ttft_ms"]["p50"] == 10.0


def test_the_serving_cell_comes_from_either_header() -> None:
    target = Target("http://x", "m", {"127.0.0.1:8001": "a"})
    assert target.cell_of({"x-headrace-cell": "b"}) == "b"
    assert target.cell_of({"x-headrace-upstream": "127.0.0.1:8001"}) == "a"
    assert target.cell_of({"x-headrace-upstream": "127.0.0.1:9"}) == ""
    assert target.cell_of({}) == ""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too long"}}', "too long"),
        (b'{"error": "no"}', "no"),
        (b'{"message": "x"}', "x"),
        (b"[1, 2]", "[1, 2]"),
        (b"no healthy\n upstream", "no healthy upstream"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", "an error without a message"),
        (b"x" * 5000, "x" * 300),
    ],
)
def test_error_text_of_anything(body: bytes, said: str) -> None:
    assert error_text(body) == said


def test_ended_is_sent_plus_duration() -> None:
    one: Record = record(sent_s=2.0, e2e_ms=500.0)
    assert one.ended_s == 2.5


def test_faults_that_differ_in_numbers_are_one() -> None:
    records = [record(status=400, error=f"limit is {n}") for n in range(3)] + [record(), record(status=503)]
    assert faults(records) == [("HTTP 400: limit is 0", 3), ("HTTP 503: ", 1)]
