"""Engines that say elsewhere how they are, speak TLS or want a key, behind a real Envoy."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from headrace_controller.settings import EnvoySettings, PoolSettings, UpstreamTlsSettings
from tests.e2e.routing.engines import Engine
from tests.e2e.routing.region import Region, running_region
from tests.e2e.xds.stack import PATIENT_CHECKS_S, until, until_async

NAME = "engine.example"
# Envoy lets a new host pass until it has failed its first checks.
QUICK = EnvoySettings(
    expose_upstream=True, health_check_interval_s=0.1, health_check_timeout_s=PATIENT_CHECKS_S
)


def context_of(authority: trustme.CA, name: str = NAME) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def pool_with(authority: trustme.CA, directory: Path, name: str | None = NAME) -> PoolSettings:
    path = directory / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return PoolSettings(tls=UpstreamTlsSettings(ca=path, server_name=name))


async def checked(region: Region, count: int, cluster: str = "pool/m") -> dict[str, bool]:
    """Which hosts pass, once each was checked `count` times and more."""

    async def enough() -> bool:
        done = await region.envoy.counter(f"cluster.{cluster}.health_check.attempt")
        return done >= count

    await until_async(enough)
    hosts = await region.envoy.hosts(cluster)
    return {
        address: "failed_active_health_check" not in host["health_status"] for address, host in hosts.items()
    }


async def test_triton_is_checked_where_it_answers(tmp_path: Path) -> None:
    one = Engine("a", health_path="/v2/health/ready")
    async with running_region(tmp_path, one, settings=QUICK) as region:
        assert await checked(region, 6) == {one.address: True}
        await until(lambda: one.checks >= 6)
        assert (await region.ask()).status == 200


async def test_kinds_that_do_not_agree_are_checked_by_connecting(tmp_path: Path) -> None:
    triton, vllm = Engine("a", health_path="/v2/health/ready"), Engine("b")
    async with running_region(tmp_path, triton, vllm, settings=QUICK) as region:
        assert all((await checked(region, 12)).values())
        assert triton.checks == vllm.checks == 0
        await vllm.stop()

        async def seen() -> bool:
            return not (await checked(region, 0))[vllm.address]

        await until_async(seen)


async def test_a_path_that_is_not_there_fails_nobody(tmp_path: Path) -> None:
    """Its agent has not yet found out its kind."""
    sglang = Engine("a", health_path="/v1/models")
    async with running_region(tmp_path, sglang, settings=QUICK) as region:
        sglang.health_path = ""
        region.publish([sglang])
        assert await checked(region, 6) == {sglang.address: True}


async def test_https_and_plain_cells_share_a_pool(tmp_path: Path) -> None:
    plain, secure = Engine("plain"), Engine("secure", context=context_of(trustme.CA()))
    async with running_region(tmp_path, plain, secure, settings=QUICK) as region:
        assert all((await checked(region, 12)).values())
        cells = [(await region.ask()).body["cell"] for _ in range(8)]
        assert set(cells) == {"plain", "secure"}
        await until(lambda: secure.checks > 3)


@pytest.mark.parametrize("name", [NAME, None])
async def test_an_engine_of_the_pools_authority_is_served(tmp_path: Path, name: str | None) -> None:
    authority = trustme.CA()
    secure = Engine("secure", context=context_of(authority))
    pools = {"m": pool_with(authority, tmp_path, name)}
    async with running_region(tmp_path, secure, settings=QUICK, pools=pools) as region:
        assert await checked(region, 6) == {secure.address: True}
        assert (await region.ask()).status == 200


@pytest.mark.parametrize("wrong", ["authority", "name", "plain"])
async def test_with_an_authority_nobody_else_gets_a_request(tmp_path: Path, wrong: str) -> None:
    authority = trustme.CA()
    contexts = {
        "authority": context_of(trustme.CA()),
        "name": context_of(authority, "another.example"),
        "plain": None,
    }
    posing = Engine("posing", context=contexts[wrong])
    pools = {"m": pool_with(authority, tmp_path)}
    async with running_region(tmp_path, posing, settings=QUICK, pools=pools) as region:
        assert (await region.ask()).status == 503
        assert await checked(region, 6) == {posing.address: False}
        assert not posing.bodies


async def test_the_pools_key_goes_with_requests_and_health_checks(tmp_path: Path) -> None:
    locked = Engine("locked", key="s%cret")
    path = tmp_path / "key"
    path.write_text("s%cret\n")
    pools = {"m": PoolSettings(api_key_file=path)}
    async with running_region(tmp_path, locked, settings=QUICK, pools=pools) as region:
        for own in ({}, {"authorization": "Bearer the client's"}):
            answer = await region.send(
                json={"model": "m", "prompt": "x"}, headers={"content-type": "application/json", **own}
            )
            assert answer.status == 200
        assert await checked(region, 6) == {locked.address: True}
