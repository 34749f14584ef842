"""Reading what the controller and Envoy say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_lab.demo.observe import KEPT, TROUBLES, History, read_counter, read_hosts, read_sample
from tests.unit.lab.demo.making import cell_json, fleet_json, history, sample


def test_a_sample_keeps_what_is_absent_absent() -> None:
    cells = [
        cell_json("a"),
        cell_json("b", None, state="FAILED", pressure=None, in_flight=None, error_rate=None),
    ]
    read = read_sample(fleet_json(*cells), 5.0)
    assert read.at == 5.0
    assert read.connected
    assert read.ready() == {"a"}
    assert read.cells["a"].weight == 100
    assert read.cells["a"].signals["error_rate"] is None
    b = read.cells["b"]
    assert (b.weight, b.pressure, b.in_flight, b.error_rate) == (0, None, None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        {"cells": 7, "gateways": [], "published": True},
        fleet_json({"id": "a"}),
        fleet_json(cell_json("a", signals=None)),
        fleet_json(cell_json("a", pressure="high")),
    ],
)
def test_an_answer_of_another_form_is_a_trouble_not_a_crash(wrong: Any) -> None:
    with pytest.raises(TROUBLES):
        read_sample(wrong, 0.0)


HOST = {
    "address": {"socket_address": {"address": "127.0.0.1", "port_value": 8001}},
    "stats": [{"name": "rq_active", "value": "2", "type": "GAUGE"}, {"name": "cx_total"}],
    "health_status": {"eds_health_status": "HEALTHY"},
    "weight": 60,
}


def clusters(*hosts: dict[str, Any]) -> dict[str, Any]:
    return {"cluster_statuses": [{"name": "xds"}, {"name": "pool", "host_statuses": list(hosts)}]}


def test_hosts_of_all_clusters() -> None:
    pipe = {"address": {"pipe": {"path": "/x"}}}
    found = read_hosts(clusters(HOST, pipe))
    assert list(found) == ["127.0.0.1:8001"]
    host = found["127.0.0.1:8001"]
    assert (host.active, host.healthy, host.weight) == (2, True, 60)


@pytest.mark.parametrize("flag", ["failed_active_health_check", "failed_outlier_check"])
def test_a_host_that_envoy_avoids_is_not_healthy(flag: str) -> None:
    marked = {**HOST, "health_status": {flag: True, "eds_health_status": "HEALTHY"}}
    assert not read_hosts(clusters(marked))["127.0.0.1:8001"].healthy


PAGE = """\
# HELP headrace_xds_nacks_total Refused.
# TYPE headrace_xds_nacks_total counter
"""


def test_a_counter_without_series_is_zero_and_an_unknown_one_is_none() -> None:
    """A renamed metric must not read as 0."""
    assert read_counter(PAGE, "headrace_xds_nacks_total") == 0
    assert read_counter("", "headrace_xds_nacks_total") is None
    rows = 'headrace_xds_nacks_total{gateway="a"} 2.0\nheadrace_xds_nacks_total{gateway="b"} 1.0\n'
    assert read_counter(PAGE + rows, "headrace_xds_nacks_total") == 3


def test_history_finds_what_was_in_force() -> None:
    kept = history(sample(1.0, a=1), sample(2.0, a=2), sample(3.0, a=3))

    def weight(moment: float) -> int | None:
        found = kept.at(moment)
        return None if found is None else found.cells["a"].weight

    assert [weight(t) for t in (0.5, 1.0, 2.9, 3.0, 99.0)] == [None, 1, 2, 3, 3]
    assert History().last is None


def test_history_is_bounded() -> None:
    kept = History()
    one = sample(1.0, a=1)
    for _ in range(KEPT + 5000):
        kept.add(one)
    assert len(kept.samples) <= KEPT
