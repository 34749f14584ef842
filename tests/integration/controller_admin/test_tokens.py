"""Who is let in: tokens with roles, and this machine alone where there are none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request

from headrace_controller.admin.access import Access, Denied, Role, is_loopback
from headrace_controller.settings import AdminSettings
from headrace_shared import config
from headrace_shared.config import ConfigError
from tests.integration.controller_admin.client import Client, ask
from tests.integration.controller_admin.conftest import populated

VIEWER, OPERATOR = "v" * 20, "o" * 20


def settings_in(place: Path, more: str = "") -> str:
    """Two tokens, in files."""
    (place / "viewer").write_text(f"{VIEWER}\n")
    (place / "operator").write_text(f"  {OPERATOR}\nsecond line\n")
    return f"""\
admin:
  {more}
  tokens:
    - {{name: grafana, role: viewer, file: {place}/viewer}}
    - {{name: anna, role: operator, file: {place}/operator}}
state_dir: {place}
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    region = populated(settings_in(tmp_path))
    async with TestClient(TestServer(region.desk.app)) as started:
        yield started
    region.close()


def bearer(token: str) -> dict[str, Any]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_viewer_looks_and_an_operator_acts(client: Client) -> None:
    assert (await ask(client, "GET", "/api/v1/status", **bearer(VIEWER)))[0] == 200
    status, error = await ask(client, "POST", "/api/v1/cells/c1/drain", **bearer(VIEWER))
    assert (status, "'grafana' may only look" in error["error"]) == (403, True)
    assert (await ask(client, "GET", "/api/v1/audit", **bearer(VIEWER)))[0] == 403
    assert (await ask(client, "GET", "/api/v1/status", **bearer(OPERATOR)))[0] == 200
    assert (await ask(client, "POST", "/api/v1/cells/c1/drain", **bearer(OPERATOR)))[0] == 202
    _, found = await ask(client, "GET", "/api/v1/audit", **bearer(OPERATOR))
    assert [(act["who"], act["role"], act["status"]) for act in found["acts"]] == [
        ("anna", "operator", 202),
        ("grafana", "viewer", 403),
    ]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {OPERATOR}",
        f"Bearer {OPERATOR}x",
        f"Bearer {OPERATOR[:-1]}",
        OPERATOR,
        "Bearer \xff",
    ],
)
async def test_without_a_token_that_is_known_there_is_nothing(client: Client, header: str) -> None:
    for path in ("/api/v1/status", "/metrics", "/api/v1/cells/none"):
        async with client.get(path, headers={"Authorization": header} if header else {}) as answer:
            assert answer.status == 401, path
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert OPERATOR not in await answer.text()


async def test_probes_and_the_document_need_no_token(client: Client) -> None:
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert (await client.get(path)).status == 200


async def test_metrics_may_be_left_open(tmp_path: Path) -> None:
    region = populated(settings_in(tmp_path, "open_metrics: true"))
    async with TestClient(TestServer(region.desk.app)) as client:
        assert (await client.get("/metrics")).status == 200
        assert (await client.get("/api/v1/status")).status == 401
    region.close()


@pytest.mark.parametrize(
    ("remote", "host", "reason"),
    [
        ("127.0.0.1", "127.0.0.1:18002", ""),
        ("::1", "[::1]:18002", ""),
        ("::ffff:127.0.0.1", "localhost:18002", ""),
        ("10.0.0.7", "127.0.0.1:18002", "not_local"),
        ("127.0.0.1", "evil.example:18002", "host"),
        ("127.0.0.1", "[::1", "host"),
    ],
)
def test_without_tokens_only_this_machine_is_let_in(remote: str, host: str, reason: str) -> None:
    request = make_mocked_request("GET", "/api/v1/status", headers={"Host": host}).clone(remote=remote)
    access = Access.of(AdminSettings())
    if not reason:
        assert access.admit(request, Role.OPERATOR).name == "local"
        return
    with pytest.raises(Denied) as denied:
        access.admit(request, Role.VIEWER)
    assert (denied.value.status, denied.value.reason) == (403, reason)


def test_loopback_is_this_machine_in_whatever_form() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "localhost")))
    assert not any(
        map(is_loopback, ("10.0.0.1", "::ffff:10.0.0.1", "", "example.com", "127.0.0.1.example.com"))
    )


def test_every_file_that_is_no_use_is_named(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("secret\n")
    (tmp_path / "one").write_text("x" * 32)
    (tmp_path / "two").write_text("x" * 32)
    names = ("short", "missing", "one", "two")
    text = "tokens:\n" + "".join(f"  - {{name: {n}, role: viewer, file: {tmp_path}/{n}}}\n" for n in names)
    with pytest.raises(ConfigError) as refused:
        Access.of(config.parse(text, AdminSettings))
    said = str(refused.value)
    for words in (
        "admin.tokens[0].file",
        "6 characters",
        "admin.tokens[1].file",
        "No such file",
        "the same token",
    ):
        assert words in said
    assert "xxxx" not in said


def test_two_tokens_cannot_have_one_name() -> None:
    token = "{name: a, role: viewer, file: /x}"
    with pytest.raises(ConfigError, match="the same name 'a'"):
        config.parse(f"tokens: [{token}, {token}]", AdminSettings)
