"""What the tests of the pages call their client."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient

Client = TestClient[web.Request, web.Application]


async def ask(client: Client, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    async with client.request(method, path, json=body, headers=headers) as answer:
        return answer.status, await answer.json()
