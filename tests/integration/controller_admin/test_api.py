"""The operator's API over HTTP: what it shows, and how it answers bad requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, Counter

from headrace_controller.admin import api
from headrace_controller.control.view import EventView, FleetView, GatewayView
from tests.support.views import cell_view


class FakeControls:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def fleet_view(self) -> FleetView:
        gateway = GatewayView("gw", True, 1, 2, 0, "", {})
        return FleetView(
            "r", "", False, "waiting", False, (gateway,), (cell_view("site/c1"), cell_view("c2"))
        )

    def event_views(self, limit: int) -> Sequence[EventView]:
        return [EventView("t", "c2", "LOADING", "READY", "engine serving", "")][:limit]

    def drain(self, cell_id: str, cause: str, deadline_s: float | None) -> None:
        self._ask("drain", cell_id, cause, deadline_s)

    def undrain(self, cell_id: str, cause: str) -> None:
        self._ask("undrain", cell_id, cause)

    def _ask(self, *what: Any) -> None:
        if what[1] == "none":
            raise KeyError(what[1])
        if what[1] == "never":
            raise ValueError("it is TERMINATED")
        self.asked.append(what)


@pytest.fixture
def controls() -> FakeControls:
    return FakeControls()


@pytest.fixture
async def client(controls: FakeControls) -> AsyncIterator[TestClient[Any, Any]]:
    registry = CollectorRegistry()
    Counter("headrace_example", "An example.", registry=registry).inc()
    async with TestClient(TestServer(api.build(controls, registry))) as started:
        yield started


async def test_health_readiness_and_metrics(client: TestClient[Any, Any]) -> None:
    assert (await client.get("/healthz")).status == 200
    assert (await client.get("/readyz")).status == 503
    assert "headrace_example_total 1.0" in await (await client.get("/metrics")).text()


async def test_cells_and_one_cell(client: TestClient[Any, Any]) -> None:
    view = await (await client.get("/api/v1/cells")).json()
    assert [each["id"] for each in view["cells"]] == ["site/c1", "c2"]
    assert view["gateways"][0]["nacks"] == 0
    one = await (await client.get("/api/v1/cells/site/c1")).json()
    assert one["signals"] == {"kv_fill": 0.5, "rtt_ms": None}


async def test_events(client: TestClient[Any, Any]) -> None:
    found = await (await client.get("/api/v1/events?limit=1")).json()
    assert found["events"][0]["from"] == "LOADING"


async def test_drain_and_undrain_are_passed_on(client: TestClient[Any, Any], controls: FakeControls) -> None:
    answer = await client.post("/api/v1/cells/site/c1/drain", json={"cause": "repair", "deadline_s": 5})
    assert answer.status == 202
    assert (await client.post("/api/v1/cells/c2/undrain")).status == 202
    assert controls.asked == [("drain", "site/c1", "repair", 5), ("undrain", "c2", "asked")]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/api/v1/cells/none", None, 404, "lists them"),
        ("GET", "/api/v1/events?limit=0", None, 400, "from 1 to 1000"),
        ("GET", "/api/v1/events?limit=x", None, 400, "from 1 to 1000"),
        ("GET", "/nothing", None, 404, ""),
        ("DELETE", "/api/v1/cells", None, 405, ""),
        ("POST", "/api/v1/cells/none/drain", "", 404, "no cell"),
        ("POST", "/api/v1/cells/never/drain", "", 409, "TERMINATED"),
        ("POST", "/api/v1/cells/c2/drain", "{", 400, "not JSON"),
        ("POST", "/api/v1/cells/c2/drain", "[]", 400, "JSON object"),
        ("POST", "/api/v1/cells/c2/drain", '{"deadline": 1}', 400, "the keys are cause, deadline_s"),
        ("POST", "/api/v1/cells/c2/drain", '{"deadline_s": true}', 400, "wrong type"),
        ("POST", "/api/v1/cells/c2/drain", '{"deadline_s": NaN}', 400, "from 0 to 86400"),
        ("POST", "/api/v1/cells/c2/drain", '{"deadline_s": -1}', 400, "from 0 to 86400"),
    ],
)
async def test_bad_requests_say_what_to_do_and_change_nothing(
    client: TestClient[Any, Any],
    controls: FakeControls,
    method: str,
    path: str,
    body: str | None,
    status: int,
    said: str,
) -> None:
    answer = await client.request(method, path, data=body)
    assert answer.status == status
    assert said in (await answer.json())["error"]
    assert controls.asked == []


async def test_a_page_from_elsewhere_cannot_ask_for_changes(
    client: TestClient[Any, Any], controls: FakeControls
) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        answer = await client.post("/api/v1/cells/c2/drain", headers={"Origin": origin})
        assert answer.status == 403, origin
    assert controls.asked == []
    own = f"http://{client.host}:{client.port}"
    assert (await client.post("/api/v1/cells/c2/drain", headers={"Origin": own})).status == 202
