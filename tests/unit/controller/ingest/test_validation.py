"""What may not change anything: each bad message has a named reason."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.ingest.figures import check_telemetry
from headrace_controller.ingest.validation import check_cell, check_event, check_hello, check_model
from headrace_pb.v1 import telemetry_pb2 as pb


def hello(**changes: object) -> pb.Hello:
    fields: dict[str, object] = {"node": "n1", "site": "a", "incarnation": 1} | changes
    return pb.Hello(**fields)  # type: ignore[arg-type]


def cell(host: str = "127.0.0.1", port: int = 8000, cell_id: str = "c1") -> pb.CellFacts:
    return pb.CellFacts(cell_id=cell_id, address=pb.Address(host=host, port=port))


def beat(**signals: float) -> pb.Telemetry:
    return pb.Telemetry(seq=1, cells=[pb.CellBeat(cell_id="c1", signals=pb.Signals(**signals))])


def test_a_good_hello_and_beat_pass() -> None:
    assert check_hello(hello(cells=[cell()])) is None
    assert check_cell(cell()) is None
    assert check_cell(cell("::1")) is None
    assert check_telemetry(beat(queue_depth=3, kv_fill=1.0, ttft_p95_s=0.0)) is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (hello(node=""), "bad_name"),
        (hello(node="a b"), "bad_name"),
        (hello(site="x" * 200), "bad_name"),
        (hello(incarnation=0), "no_incarnation"),
        (hello(cells=[cell(), cell(port=9)]), "cell_twice"),
        (hello(cells=[cell(cell_id=f"c{i}") for i in range(257)]), "too_many_cells"),
    ],
)
def test_a_bad_hello_is_named(message: pb.Hello, reason: str) -> None:
    rejection = check_hello(message)
    assert rejection is not None
    assert rejection.reason == reason


@pytest.mark.parametrize(
    "address", [("engine.local", 80), ("0.0.0.0", 80), ("224.0.0.1", 80), ("10.0.0.1", 0), ("", 1)]
)
def test_an_address_that_gateways_cannot_use_is_refused(address: tuple[str, int]) -> None:
    rejection = check_cell(cell(*address))
    assert rejection is not None
    assert rejection.reason == "bad_address"


@pytest.mark.parametrize(
    ("signals", "reason"),
    [
        ({"queue_depth": float("nan")}, "bad_number"),
        ({"ttft_p95_s": float("inf")}, "bad_number"),
        ({"queue_depth": -1.0}, "bad_number"),
        ({"kv_fill": 57.0}, "bad_unit"),
        ({"gpu_util": 91.0}, "bad_unit"),
    ],
)
def test_bad_figures_are_named(signals: dict[str, float], reason: str) -> None:
    rejection = check_telemetry(beat(**signals))
    assert rejection is not None
    assert rejection.reason == reason
    assert next(iter(signals)) in rejection.detail


def test_bad_health_and_path_figures_are_refused() -> None:
    sick = pb.Telemetry(cells=[pb.CellBeat(cell_id="c", hardware=pb.HardwareHealth(power_w=float("nan")))])
    assert check_telemetry(sick) is not None
    path = pb.Telemetry(paths=[pb.PathBeat(gateway="g", rtt_ms=-1.0)])
    assert check_telemetry(path) is not None


def test_a_loss_is_a_fraction_and_a_cell_stands_once_in_a_beat() -> None:
    lossy = check_telemetry(pb.Telemetry(paths=[pb.PathBeat(gateway="g", loss=12.0)]))
    assert lossy is not None
    assert lossy.reason == "bad_unit"
    twice = check_telemetry(pb.Telemetry(cells=[pb.CellBeat(cell_id="c"), pb.CellBeat(cell_id="c")]))
    assert twice is not None
    assert twice.reason == "cell_twice"


@pytest.mark.parametrize(
    "model",
    [
        pb.ModelFacts(id=""),
        pb.ModelFacts(id="a\nb"),
        pb.ModelFacts(id="m" * 1025),
        pb.ModelFacts(id="m", base_model="b" * 1025),
        pb.ModelFacts(id="m", max_model_len=0),
    ],
)
def test_a_model_has_a_name_and_a_length_or_none(model: pb.ModelFacts) -> None:
    assert check_model("c", pb.ModelFacts(id="m", max_model_len=1)) is None
    rejection = check_model("c", model)
    assert rejection is not None
    assert rejection.reason == "bad_model"


def test_events_need_a_kind_and_an_id() -> None:
    assert check_event(pb.CellEvent(kind=pb.CELL_EVENT_KIND_ENGINE_DOWN, event_id=1)) is None
    assert check_event(pb.CellEvent(event_id=1)) is not None
    assert check_event(pb.CellEvent(kind=999, event_id=1)) is not None  # type: ignore[arg-type]
    assert check_event(pb.CellEvent(kind=pb.CELL_EVENT_KIND_XID)) is not None


@given(st.binary(max_size=300))
def test_any_bytes_that_parse_are_judged_without_a_crash(data: bytes) -> None:
    for kind, check in (
        (pb.Hello, check_hello),
        (pb.Telemetry, check_telemetry),
        (pb.CellEvent, check_event),
    ):
        try:
            message = kind.FromString(data)
        except DecodeError:
            continue
        check(message)  # type: ignore[operator]


@pytest.mark.parametrize("path", ["", "/health", "/v2/health/ready", "/v1/models", "/", "/a~b_c.d-e"])
def test_a_health_path_is_a_path_or_not_known(path: str) -> None:
    facts = cell()
    facts.health_path = path
    assert check_cell(facts) is None


@pytest.mark.parametrize(
    "path", ["health", "/a b", "/a?x=1", "/a\n", "/%2e", "http://x/", "/" + "a" * 256, "/ü"]
)
def test_what_is_no_health_path_is_refused(path: str) -> None:
    facts = cell()
    facts.health_path = path
    rejection = check_cell(facts)
    assert rejection is not None
    assert (rejection.reason, "health_path" in rejection.detail) == ("bad_path", True)
