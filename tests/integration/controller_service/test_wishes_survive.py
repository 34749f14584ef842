"""What operators asked for stands again when a whole controller is restarted."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from headrace_shared.tls import TlsSettings
from tests.integration.controller_service.node import beating, speaking
from tests.integration.controller_service.running import Running, serving, settings_of, until


async def ask(running: Running, method: str, path: str, body: Any = None) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, running.admin + path, json=body) as answer,
    ):
        assert answer.status in (200, 202), await answer.text()
        return await answer.json()


def state_is(running: Running, *states: str) -> Any:
    async def holds() -> bool:
        cell = (await running.cells()).get("c1")
        return cell is not None and cell["state"] in states

    return holds


@pytest.mark.parametrize("lost", ["", "fleet.json"])
async def test_drains_and_weights_stand_again(tmp_path: Path, lost: str) -> None:
    """Also where the kept fleet is gone, which knows of drains by itself."""
    async with serving(settings_of(state_dir=tmp_path)) as running, speaking(running.telemetry) as node:
        await node.serve()
        async with beating(node):
            await until(running.serving_c1)
            told = await ask(running, "PUT", "/api/v1/cells/c1/override", {"weight": 9})
            assert told["kept"] is True
            await ask(running, "POST", "/api/v1/cells/c1/drain", {"cause": "repair", "deadline_s": 600})
            await until(state_is(running, "DRAINING"))
    if lost:
        (tmp_path / lost).unlink(missing_ok=True)
    async with serving(settings_of(state_dir=tmp_path)) as running, speaking(running.telemetry) as node:
        await node.serve()
        async with beating(node):
            await until(state_is(running, "DRAINING", "TERMINATED"))
            cell = (await running.cells())["c1"]
            assert (cell["override"], set(cell["weights"].values())) == (9, {0})
            await ask(running, "POST", "/api/v1/cells/c1/undrain")
            await until(running.serving_c1)
            assert set((await running.cells())["c1"]["weights"].values()) == {9}


async def test_a_store_that_is_damaged_does_not_keep_a_controller_from_serving(tmp_path: Path) -> None:
    (tmp_path / "operators.db").write_bytes(b"no database" * 500)
    async with serving(settings_of(state_dir=tmp_path)) as running:
        assert (await ask(running, "GET", "/api/v1/status"))["intents_kept"] is True
        assert (tmp_path / "operators.db.unusable-1").exists()


async def test_the_pages_speak_tls_and_only_to_tokens(tmp_path: Path) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    pair.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    pair.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    (tmp_path / "token").write_text("t" * 32)
    more = f"admin: {{tokens: [{{name: anna, role: operator, file: {tmp_path}/token}}]}}\n"
    plain = settings_of(more=more)
    tls = TlsSettings(cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    listen = plain.listen.model_copy(update={"admin_tls": tls})
    context = ssl.create_default_context()
    authority.configure_trust(context)
    served = plain.model_copy(update={"listen": listen})
    async with serving(served, tls=context) as running, aiohttp.ClientSession() as session:
        url = f"{running.admin}/api/v1/status"
        async with session.get(url, ssl=context) as answer:
            assert answer.status == 401
        headers = {"Authorization": f"Bearer {'t' * 32}"}
        async with session.get(url, ssl=context, headers=headers) as answer:
            assert answer.status == 200
