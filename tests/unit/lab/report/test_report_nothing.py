"""Where weights gain nothing, in words."""

from __future__ import annotations

from headrace_lab.report.nothing import sentences
from tests.unit.lab.report.making import MATRIX, interval, line, result


def test_where_weights_gain_nothing_is_said_from_the_results() -> None:
    said = sentences([MATRIX])
    assert any("1 of 2 loads and tiers" in each and "a (middle) 0.90x" in each for each in said)
    assert any("P99 TTFT is above" in each and "a 1.10x" in each for each in said)
    assert not any("b (middle)" in each for each in said)
    unsure = result("matrix/perturbed", "sim", {}, lines=[line("c", 1.3, apart=False)])
    assert any("c (middle) 1.30x" in each for each in sentences([unsure]))
    single = line("c", 1.3, apart=False) | {"vs_rr": {"value": 1.3, "low": None, "high": None}}
    assert sentences([result("matrix/perturbed", "sim", {}, lines=[single])]) == []
    jitter = result("jitter", "sim", {"network_gain.clean": 0.001, "network_gain.spread": 0.3})
    assert sentences([jitter]) == ["network signals (sim) gain nothing in P95 TTFT under: clean +0.1 %."]
    full = result("saturation", "live", {"ttft_p99_ms.rr": 9000.0, "ttft_p99_ms.weights": 9100.0})
    assert "as much as round-robin's" in sentences([full])[0]
    lead = result(
        "lead-time", "sim", {"lead_s_mean": 15.0, "lead_s_mean.pcie": 0.1, "lead_s_mean.thermal.5s": 0.2}
    )
    assert sentences([lead]) == ["early warning: no lead against pcie stress (0.1 s)."]


def test_what_is_less_than_a_plain_gateway_within_the_spread_is_not_called_less() -> None:
    below = line("a", 1.2) | {"vs_plain": {"value": 0.97, "low": 0.95, "high": 0.99}}
    perhaps = line("b", 1.2) | {"vs_plain": {"value": 0.99, "low": 0.97, "high": 1.01}}
    (said,) = sentences([result("matrix/perturbed", "sim", {}, lines=[below, perhaps])])
    assert "in 1 of 2" in said
    assert "a (middle) 0.97x" in said


def test_many_are_told_as_a_range() -> None:
    many = [line(f"load{n}", 0.9 + n / 100) | {"vs_plain": interval(1.2)} for n in range(10)]
    (said,) = sentences([result("matrix/homogeneous", "sim", {}, lines=many)])
    assert "0.90x to 0.99x, in load0, load1" in said


def test_where_an_oracle_gains_nothing_there_is_nothing_to_gain() -> None:
    lines = [line("a", 1.5), line("a", 1.02) | {"arm": "oracle"}, line("b", 1.4) | {"arm": "oracle"}]
    (said,) = sentences([result("matrix/heterogeneous", "sim", {}, lines=lines)])
    assert "little to gain in 1 of 2" in said


def test_a_plain_gateway_that_is_as_fast_is_told() -> None:
    cold = result(
        "calibration",
        "live",
        {"ttft_p95_ms.rr": 700.0, "ttft_p95_ms.lr": 900.0, "ttft_p95_ms.weights": 710.0},
        rps=10.0,
    )
    assert sentences([cold]) == [
        "calibration (live, 10 RPS): P95 TTFT with weights is as much as that of rr."
    ]
    faster = result("perturbed", "live", {"ttft_p95_ms.rr": 1000.0, "ttft_p95_ms.weights": 600.0})
    assert sentences([faster]) == []


def test_a_fault_that_retries_alone_get_over_is_told() -> None:
    figures = {f"after_fault_p99_ms.{arm}": ms for arm, ms in (("rr", 4e3), ("rr_retries", 800.0))}
    kill = result("failover", "live", figures | {"after_fault_p99_ms.weights": 880.0}, kind="kill")
    (said,) = sentences([kill])
    assert said.startswith("failover, kill (live): P99 to a first token of requests sent after it is 1.10 ")
    assert said.endswith("times that of rr_retries.")


def test_bursts_that_no_weight_answered_are_told() -> None:
    burst = result("burst", "live", {"bursts.weights": 4.0, "reactions_seen.weights": 1.0})
    assert any("stood still in 3 of 4" in each for each in sentences([burst]))
    answered = result("burst", "live", {"bursts.weights": 4.0, "reactions_seen.weights": 4.0})
    assert sentences([answered]) == []
