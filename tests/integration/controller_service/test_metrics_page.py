"""The controller's metrics page and docs/metrics.md say the same."""

from __future__ import annotations

import re
from pathlib import Path

import grpc
import pytest
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from envoy.service.load_stats.v3 import lrs_pb2_grpc
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from headrace_controller.xds.names import CDS
from tests.integration.controller_service.node import beating, speaking
from tests.integration.controller_service.running import serving, settings_of, until
from tests.integration.controller_xds.client import connected
from tests.unit.controller.gateway.entries import entry, load_report

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(?P<name>\w+)` \|(?P<labels>[^|]*)\|", re.MULTILINE)


# Told only once something was learned, or while something is wrong; tests/simulation/capability_classes and
# tests/unit/controller/control/test_controller_metrics.py look at their labels.
LEARNED = {"headrace_class_bytes_per_token", "headrace_cell_early_warning"}


def documented() -> dict[str, set[str]]:
    """Labels by metric, as the table of the controller has them."""
    section = DOCS.read_text().partition("## Controller")[2].partition("\n## ")[0]
    return {
        row["name"]: {label.strip() for label in row["labels"].split(",") if label.strip()}
        for row in ROW.finditer(section)
    }


def names_of(page: str) -> set[str]:
    """The metrics on a page but those of the process; the moments at which counters were made are the
    library's own."""
    found = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE headrace_")}
    return {name for name in found if not name.endswith("_created")}


async def test_an_empty_controller_already_has_every_metric() -> None:
    """So a dashboard or an alert can tell "none" from "gone"."""
    async with serving(settings_of()) as running:
        status, page = await running.get("/metrics")
    assert status == 200
    assert names_of(page) == set(documented())
    assert len(documented()) >= 15


async def report(port: int) -> None:
    """A gateway tells of one request to c1, and of its load."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        log = als_pb2_grpc.AccessLogServiceStub(channel).StreamAccessLogs()
        message = als_pb2.StreamAccessLogsMessage()
        message.identifier.node.id = "gw-1"
        message.http_logs.log_entry.append(entry("127.0.0.1:1"))
        await log.write(message)
        loads = lrs_pb2_grpc.LoadReportingServiceStub(channel).StreamLoadStats()
        await loads.write(load_report(("127.0.0.1:1", 2, 1)))
        await loads.read()
        await log.done_writing()
        await log
        loads.cancel()


async def eventful_page() -> str:
    """The page of a controller to which one of everything has happened."""
    async with serving(settings_of()) as running, speaking(running.telemetry) as node:
        node.members = ("n2",)
        await node.serve()
        await node.beat(kv_fill=float("nan"))
        async with beating(node), connected(running.xds) as envoy:
            await envoy.ask(CDS)
            first = await envoy.take(10)
            await envoy.ack(first)
            async with speaking(running.telemetry, "n2", ["c2"]) as other:
                await other.serve()
                await envoy.ask("type.googleapis.com/envoy.config.listener.v3.Listener")
                await envoy.nack(await envoy.take(10))

                async def all_seen() -> bool:
                    page = (await running.get("/metrics"))[1]
                    return 'headrace_xds_nacks_total{gateway="gw-1",type="LDS"} 1.0' in page and (
                        'headrace_cell_weight{cell="c2"' in page
                    )

                await until(all_seen)
                await report(running.xds)

                async def reported() -> bool:
                    page = (await running.get("/metrics"))[1]
                    return "requests_in_progress{" in page and "requests_total{" in page

                await until(reported)
                return (await running.get("/metrics"))[1]


@pytest.fixture
async def families() -> dict[str, Metric]:
    page = await eventful_page()
    return {each.name: each for each in text_string_to_metric_families(page)}


async def test_labels_are_those_that_the_docs_name(families: dict[str, Metric]) -> None:
    for name, labels in documented().items():
        family = families.get(name) or families[name.removesuffix("_total")]
        assert family.samples or name in LEARNED, f"nothing of {name} is on the page"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == labels, sample


async def test_figures_are_those_of_the_fleet(families: dict[str, Metric]) -> None:
    def value(name: str, **labels: str) -> float:
        (found,) = [each.value for each in families[name].samples if each.labels == labels]
        return found

    c1 = {"cell": "c1", "site": "berlin"}
    assert value("headrace_cell_state", **c1) == 2
    assert value("headrace_cell_weight", **c1, gateway="gw-1") == 100
    assert 0 < value("headrace_cell_pressure", **c1, gateway="gw-1") < 0.5
    assert value("headrace_cell_signal", **c1, signal="kv_fill") == 0.2
    assert 0 <= value("headrace_heartbeat_age_seconds", **c1) < 5
    assert value("headrace_cell_member_up", **c1, node="n2") in (0, 1)
    assert value("headrace_gateway_connected", gateway="gw-1") == 1
    assert value("headrace_gateway_refuses", gateway="gw-1", type="LDS") == 1
    assert value("headrace_gateway_refuses", gateway="gw-1", type="EDS") == 0
    assert value("headrace_self_preservation") == 0
    assert sum(each.value for each in families["headrace_rejections"].samples) == 1
    assert sum(each.value for each in families["headrace_tick_errors"].samples) == 0
