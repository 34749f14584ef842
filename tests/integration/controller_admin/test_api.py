"""The operator's API over HTTP: what it shows, what it does, and how it answers bad requests."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest

from tests.integration.controller_admin.client import Client, ask
from tests.unit.controller.control.region import Region


async def test_health_readiness_and_metrics(client: Client, region: Region) -> None:
    for path in ("/healthz", "/readyz"):
        assert (await client.get(path)).status == 200
        assert (await client.head(path)).status == 200
    text = await (await client.get("/metrics")).text()
    assert 'headrace_cell_state{cell="c1",site="berlin"} 2.0' in text
    assert "# TYPE headrace_tick_seconds histogram" in text
    region.clock.advance(60)
    answer = await client.get("/readyz")
    assert (answer.status, "has not turned" in await answer.text()) == (503, True)


async def test_status_counts_and_tells_what_is_asked(client: Client, region: Region) -> None:
    await ask(client, "PUT", "/api/v1/sites/paris/cordon", {"cause": "cooling"})
    _, found = await ask(client, "GET", "/api/v1/status")
    assert {each["site"]: (each["cells"], each["ready"], each["cordoned"]) for each in found["sites"]} == {
        "berlin": (2, 1, False),
        "paris": (1, 1, True),
    }
    assert (found["cells"], found["ready"], found["intents_kept"]) == (3, True, True)
    (intent,) = found["intents"]
    assert (intent["kind"], intent["subject"], intent["cause"], intent["by"]) == (
        *("cordon", "paris"),
        *("cooling", "local"),
    )


async def test_cells_come_in_pages(client: Client) -> None:
    _, whole = await ask(client, "GET", "/api/v1/cells")
    assert [cell["id"] for cell in whole["cells"]] == ["c1", "c2", "site/c3"]
    assert (whole["total"], whole["next"], whole["published"]) == (3, None, True)
    _, page = await ask(client, "GET", "/api/v1/cells?limit=2")
    assert ([cell["id"] for cell in page["cells"]], page["next"]) == (["c1", "c2"], "c2")
    _, page = await ask(client, "GET", f"/api/v1/cells?limit=2&after={page['next']}")
    assert ([cell["id"] for cell in page["cells"]], page["next"]) == (["site/c3"], None)
    _, ready = await ask(client, "GET", "/api/v1/cells?state=READY&site=berlin")
    assert ([cell["id"] for cell in ready["cells"]], ready["total"]) == (["c1"], 1)
    assert (await ask(client, "GET", "/api/v1/cells?site=rome"))[1]["cells"] == []


async def test_one_cell_by_an_id_with_a_slash_or_without(client: Client) -> None:
    for path in ("site/c3", "site%2Fc3"):
        status, found = await ask(client, "GET", f"/api/v1/cells/{path}")
        assert (status, found["cell"]["id"], found["cell"]["site"]) == (200, "site/c3", "paris")
    assert [each["to"] for each in found["history"]] == ["LOADING", "READY"]


async def test_explain_tells_each_gateways_weight(client: Client) -> None:
    status, found = await ask(client, "GET", "/api/v1/cells/site/c3/explain")
    assert status == 200
    assert [each["gateway"] for each in found["explanations"]] == ["gw-1", "gw-2"]
    assert found["explanations"][0]["weights"][0]["model"] == "m"
    _, one = await ask(client, "GET", "/api/v1/cells/c1/explain?gateway=gw-2")
    assert [each["gateway"] for each in one["explanations"]] == ["gw-2"]
    status, error = await ask(client, "GET", "/api/v1/cells/c1/explain?gateway=x")
    assert (status, "gw-1, gw-2" in error["error"]) == (404, True)


async def test_pools_gateways_and_events(client: Client) -> None:
    _, pools = await ask(client, "GET", "/api/v1/pools")
    assert [(pool["model"], pool["cells"], pool["ready"]) for pool in pools["pools"]] == [("m", 3, 2)]
    _, gateways = await ask(client, "GET", "/api/v1/gateways")
    assert [(each["id"], each["connected"]) for each in gateways["gateways"]] == [
        ("gw-1", False),
        ("gw-2", False),
    ]
    _, found = await ask(client, "GET", "/api/v1/events?limit=1")
    (event,) = found["events"]
    assert (event["from"], event["to"], event["id"]) == ("LOADING", "READY", found["last_id"])


async def test_a_drain_and_its_end_are_seen_at_once(client: Client) -> None:
    status, told = await ask(
        client, "POST", "/api/v1/cells/site%2Fc3/drain", {"cause": "repair", "deadline_s": 5}
    )
    assert (status, told) == (
        202,
        {"cell": "site/c3", "accepted": True, "kept": True, "state": "DRAINING"},
    )
    _, found = await ask(client, "GET", "/api/v1/cells/site/c3")
    assert (found["drain"]["cause"], found["drain"]["remaining_s"]) == ("repair", 5.0)
    status, told = await ask(client, "POST", "/api/v1/cells/site/c3/undrain")
    assert (status, told["state"]) == (202, "READY")


async def test_a_weight_that_is_set_is_pushed_and_lifted_again(client: Client, region: Region) -> None:
    status, told = await ask(client, "PUT", "/api/v1/cells/c1/override", {"weight": 7, "cause": "canary"})
    assert (status, told) == (200, {"subject": "c1", "accepted": True, "kept": True})
    region.tick()
    _, found = await ask(client, "GET", "/api/v1/cells/c1")
    assert (found["cell"]["weights"], found["cell"]["override"]) == ({"gw-1": 7, "gw-2": 7}, 7)
    assert (await ask(client, "DELETE", "/api/v1/cells/c1/override"))[0] == 200
    for _ in range(40):
        region.tick()
    _, found = await ask(client, "GET", "/api/v1/cells/c1")
    assert found["cell"]["override"] is None
    assert found["cell"]["weights"]["gw-1"] > 7


async def test_shadow_freeze_cordon_and_pin_reach_the_projection(client: Client, region: Region) -> None:
    await ask(client, "POST", "/api/v1/shadow", {"on": True})
    await ask(client, "POST", "/api/v1/freeze", {"on": True})
    await ask(client, "PUT", "/api/v1/sites/paris/cordon")
    await ask(client, "PUT", "/api/v1/pools/m/pin", {"sites": ["berlin"]})
    intents = region.loop.intents
    assert (intents.shadow, intents.frozen) == (True, True)
    assert intents.cordoned_sites == {"paris"}
    assert intents.pins == {"m": {"berlin"}}
    region.tick()
    _, found = await ask(client, "GET", "/api/v1/cells/site/c3")
    assert (found["cell"]["cordoned"], set(found["cell"]["weights"].values())) == (True, {0})
    for method, path, body in (
        ("POST", "/api/v1/shadow", {"on": False}),
        ("POST", "/api/v1/freeze", {"on": False}),
        ("DELETE", "/api/v1/sites/paris/cordon", None),
        ("DELETE", "/api/v1/pools/m/pin", None),
    ):
        assert (await ask(client, method, path, body))[0] == 200
    assert region.loop.intents == type(intents)()


async def test_a_baseline_takes_no_wish_about_weights() -> None:
    from aiohttp.test_utils import TestClient, TestServer

    from tests.integration.controller_admin.conftest import populated

    region = populated("baseline: rr\n")
    async with TestClient(TestServer(region.desk.app)) as client:
        status, error = await ask(client, "POST", "/api/v1/shadow", {"on": True})
        assert (status, "without a baseline" in error["error"]) == (409, True)
        assert (await ask(client, "POST", "/api/v1/cells/c1/drain"))[0] == 202
        _, told = await ask(client, "POST", "/api/v1/cells/c1/undrain")
        assert told["kept"] is False, "without a state_dir nothing outlives a restart"


async def test_every_act_is_accounted_for(client: Client) -> None:
    await ask(client, "POST", "/api/v1/cells/c1/drain", {"cause": "repair"})
    await ask(client, "POST", "/api/v1/cells/none/drain")
    _, found = await ask(client, "GET", "/api/v1/audit")
    newest, before = found["acts"]
    assert (newest["action"], newest["subject"], newest["status"]) == ("drain", "none", 404)
    assert (before["subject"], before["status"], before["who"]) == ("c1", 202, "local")
    assert (before["source"], before["role"]) == ("127.0.0.1", "operator")
    assert "repair" in before["detail"]
    _, page = await ask(client, "GET", "/api/v1/audit?limit=1")
    _, rest = await ask(client, "GET", f"/api/v1/audit?limit=1&before={page['next']}")
    assert [act["id"] for act in (*page["acts"], *rest["acts"])] == [newest["id"], before["id"]]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/api/v1/cells/none", None, 404, "lists them"),
        ("GET", "/api/v1/cells/none/explain", None, 404, "lists them"),
        ("GET", "/api/v1/cells?limit=0", None, 400, "from 1 to 10000"),
        ("GET", "/api/v1/cells?limit=10001", None, 400, "from 1 to 10000"),
        ("GET", "/api/v1/cells?state=ready", None, 400, "LOADING, READY"),
        ("GET", "/api/v1/cells?lmit=5", None, 400, "'lmit' is unknown"),
        ("GET", "/api/v1/cells?limit=5&limit=6", None, 400, "stands twice"),
        ("GET", "/api/v1/status?x=1", None, 400, "there are none here"),
        ("GET", "/api/v1/events?limit=0", None, 400, "from 1 to 1000"),
        ("GET", "/api/v1/events?limit=x", None, 400, "from 1 to 1000"),
        ("GET", "/api/v1/events/stream?after=-1", None, 400, "whole number"),
        ("GET", "/nothing", None, 404, ""),
        ("DELETE", "/api/v1/cells", None, 405, ""),
        ("POST", "/api/v1/cells/none/drain", "", 404, "no cell"),
        ("POST", "/api/v1/cells/c1/undrain", "", 409, "READY"),
        ("POST", "/api/v1/cells/c1/drain", "{", 400, "not JSON"),
        ("POST", "/api/v1/cells/c1/drain", "[" * 5000, 400, "not JSON"),
        ("POST", "/api/v1/cells/c1/drain", "[]", 400, "JSON object"),
        ("POST", "/api/v1/cells/c1/drain", '{"deadline": 1}', 400, "the keys are cause, deadline_s"),
        ("POST", "/api/v1/cells/c1/drain", '{"deadline_s": true}', 400, "deadline_s"),
        ("POST", "/api/v1/cells/c1/drain", '{"deadline_s": NaN}', 400, "deadline_s"),
        ("POST", "/api/v1/cells/c1/drain", '{"deadline_s": -1}', 400, "greater than or equal to 0"),
        ("POST", "/api/v1/cells/c1/drain", '{"cause": "' + "x" * 501 + '"}', 400, "at most 500"),
        ("PUT", "/api/v1/cells/c1/override", "{}", 400, "weight: Field required"),
        ("PUT", "/api/v1/cells/c1/override", '{"weight": 0}', 400, "greater than or equal to 1"),
        ("PUT", "/api/v1/cells/c1/override", '{"weight": 101}', 409, "1 to 100 (projection.max_weight)"),
        ("PUT", "/api/v1/cells/c1/override", '{"weight": 1.5}', 400, "weight"),
        ("PUT", "/api/v1/cells/none/override", '{"weight": 5}', 404, "no cell"),
        ("DELETE", "/api/v1/cells/none/override", None, 404, "no cell"),
        ("PUT", "/api/v1/sites/rome/cordon", "", 404, "no site"),
        ("PUT", "/api/v1/pools/none/pin", '{"sites": []}', 404, "no pool"),
        ("PUT", "/api/v1/pools/m/pin", '{"sites": ["rome"]}', 409, "berlin, paris"),
        ("POST", "/api/v1/shadow", "{}", 400, "on: Field required"),
        ("POST", "/api/v1/shadow", '{"on": 1}', 400, "valid boolean"),
    ],
)
async def test_bad_requests_say_what_to_do_and_change_nothing(
    client: Client, region: Region, method: str, path: str, body: str | None, status: int, said: str
) -> None:
    before = region.loop.events.last_id
    async with client.request(method, path, data=body) as answer:
        assert answer.status == status
        assert said in (await answer.json())["error"]
    assert region.loop.events.last_id == before
    assert region.loop.intents == type(region.loop.intents)()


async def test_a_page_from_elsewhere_cannot_ask_for_changes(client: Client, region: Region) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://[::1"):
        status, _ = await ask(client, "POST", "/api/v1/cells/c1/drain", Origin=origin)
        assert status == 403, origin
    assert region.views.state_of("c1") == "READY"
    own = f"http://{client.host}:{client.port}"
    assert (await ask(client, "POST", "/api/v1/cells/c1/drain", Origin=own))[0] == 202


async def test_a_name_that_another_site_points_here_is_refused(client: Client) -> None:
    """Without tokens a page could reach loopback under its own name, and so be of the same origin."""
    status, error = await ask(client, "GET", "/api/v1/status", Host="evil.example:18002")
    assert (status, "use 127.0.0.1" in error["error"]) == (403, True)


async def test_every_answer_is_strict_json(client: Client) -> None:
    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is no JSON")

    for path in (
        "status",
        "cells",
        "cells/c1",
        "cells/c2",
        "cells/c1/explain",
        "pools",
        "gateways",
        "events",
        "intents",
    ):
        text = await (await client.get(f"/api/v1/{path}")).text()
        found: Any = json.loads(text, parse_constant=refuse)
        assert found, path
