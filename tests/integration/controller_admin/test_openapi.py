"""The OpenAPI document says what the server does: requests made from it, answers checked against it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from aiohttp import web
from schemathesis.checks import load_all_checks

from headrace_controller.admin.openapi import document
from headrace_controller.admin.routes import ROUTES
from tests.integration.controller_admin.conftest import populated
from tests.unit.controller.control.region import Region

TOKEN = "t" * 24
EXAMPLES = 20
STEP_S = 0.05


class Served:
    """The pages of a region in a thread with an event loop of its own."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self.url = ""
        self._thread = threading.Thread(target=self._run, name="pages")

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        runner = web.AppRunner(self._region.desk.app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        self._ready.set()
        while not self._stop.is_set():
            self._region.tick(STEP_S)
            await asyncio.sleep(STEP_S)
        await runner.cleanup()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("state")
    (place / "token").write_text(TOKEN)
    region = populated(
        f"state_dir: {place}\nadmin: {{tokens: [{{name: t, role: operator, file: {place}/token}}]}}\n"
    )
    with Served(region) as started:
        yield started
    region.close()


# Streams do not end; what they say has tests of its own.
OPERATIONS = [route for route in ROUTES if route.content != "text/event-stream"]


@pytest.mark.parametrize("route", OPERATIONS, ids=[route.handler for route in OPERATIONS])
def test_requests_made_from_the_document_are_answered_as_it_says(served: Served, route: Any) -> None:
    load_all_checks()
    schema = schemathesis.openapi.from_dict(document())
    operation = schema[route.path][route.method]

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy())
    def check(case: Any) -> None:
        case.call_and_validate(base_url=served.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)

    check()


def test_the_document_names_every_route_and_each_once() -> None:
    found = document()
    assert {(path, method.upper()) for path, each in found["paths"].items() for method in each} == {
        (route.path, route.method) for route in ROUTES
    }
    assert len({route.handler for route in ROUTES}) == len(ROUTES)


def test_the_document_is_whole(tmp_path: Path) -> None:
    """Every reference in it leads somewhere."""
    schemas = document()["components"]["schemas"]

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                assert node["$ref"].removeprefix("#/components/schemas/") in schemas
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document())
