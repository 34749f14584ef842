"""The exporter's GPUs follow their cells; its faults are those that agents meet."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_lab.engine import EngineParameters
from headrace_lab.gpu.settings import ExporterSettings, Placement
from tests.integration.lab_cell.conftest import Server, eventually, running_cell, running_exporter

SLOW = EngineParameters(decode_base_s=0.02, max_model_len=4096)


def settings(*cells: str) -> ExporterSettings:
    gpus = tuple(Placement(f"GPU-{i}", url) for i, url in enumerate(cells))
    return ExporterSettings(gpus, collect_s=0.05, poll_s=0.03)


async def figure(session: aiohttp.ClientSession, exporter: Server, name: str, gpu: str = "GPU-0") -> float:
    async with session.get(f"{exporter.url}/metrics") as response:
        assert response.status == 200
        text = await response.text()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.removesuffix("_total") == name and sample.labels["UUID"] == gpu:
                return sample.value
    raise AssertionError(f"{name} of {gpu} is not on the page")


async def order(session: aiohttp.ClientSession, exporter: Server, fault: str) -> None:
    async with session.post(f"{exporter.url}/lab/faults", json={"fault": fault}) as response:
        assert response.status == 200


async def test_a_gpu_follows_its_own_cell_and_is_empty_when_that_dies(session: aiohttp.ClientSession) -> None:
    body: dict[str, Any] = {"prompt": "hello", "max_tokens": 2000}
    async with running_cell(engine=SLOW) as busy, running_cell() as idle:
        async with running_exporter(settings(busy.url, idle.url)) as exporter:
            asking = asyncio.create_task(_ask(busy.url, body), name="client")

            async def is_busy() -> bool:
                return await figure(session, exporter, "DCGM_FI_DEV_GPU_UTIL") > 60

            async def is_empty() -> bool:
                return await figure(session, exporter, "DCGM_FI_DEV_FB_USED") == 0

            async def reads() -> bool:
                return await figure(session, exporter, "DCGM_FI_PROF_DRAM_ACTIVE") > 0.5

            async def is_full() -> bool:
                return await figure(session, exporter, "DCGM_FI_DEV_FB_USED", "GPU-1") > 0

            for each in (is_busy, reads, is_full):
                await eventually(each)
            assert await figure(session, exporter, "DCGM_FI_DEV_GPU_UTIL", "GPU-1") == 0
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        async with running_exporter(settings("http://127.0.0.1:9", idle.url)) as exporter:
            await eventually(is_empty)
            assert await figure(session, exporter, "DCGM_FI_DEV_POWER_USAGE") > 0


async def _ask(url: str, body: dict[str, Any]) -> bytes:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/completions", json=body) as response,
    ):
        return await response.read()


async def test_energy_moves_unless_stale(session: aiohttp.ClientSession) -> None:
    name = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    async with running_exporter(settings("http://127.0.0.1:9")) as exporter:

        async def moves() -> bool:
            return await figure(session, exporter, name) > first

        first = await figure(session, exporter, name)
        await eventually(moves)
        await order(session, exporter, "stale")
        first = await figure(session, exporter, name)
        await asyncio.sleep(0.2)
        assert await figure(session, exporter, name) == first
        await order(session, exporter, "clear")
        await eventually(moves)


async def test_faults_and_health(session: aiohttp.ClientSession) -> None:
    async with running_exporter(settings("http://127.0.0.1:9")) as exporter:
        await order(session, exporter, "down500")
        async with session.get(f"{exporter.url}/metrics") as response:
            assert response.status == 500
        await order(session, exporter, "empty")
        async with session.get(f"{exporter.url}/metrics") as response:
            assert (response.status, await response.text()) == (200, "")
        await order(session, exporter, "hang")
        with pytest.raises(asyncio.TimeoutError):
            await session.get(f"{exporter.url}/metrics", timeout=aiohttp.ClientTimeout(total=0.3))
        async with session.get(f"{exporter.url}/health") as response:
            assert response.status == 200
        await order(session, exporter, "clear")
        assert await figure(session, exporter, "DCGM_FI_DEV_POWER_USAGE") > 0
        async with session.post(f"{exporter.url}/lab/faults", data=b"nonsense") as response:
            assert response.status == 400


async def test_a_gpu_under_stress_slows_its_own_engine_and_lets_go_of_it(
    session: aiohttp.ClientSession,
) -> None:
    async with running_cell() as cell, running_cell() as other:
        gpus = replace(settings(cell.url, other.url), pcie_share=0.5)
        async with running_exporter(gpus) as exporter:

            async def slowdown(of: Server) -> float:
                async with session.get(f"{of.url}/lab/faults") as response:
                    return float((await response.json())["slowdown"])

            async def stress(**given: float) -> None:
                body = {"gpu": "GPU-0", **given}
                async with session.post(f"{exporter.url}/lab/stress", json=body) as response:
                    assert response.status == 200

            async def is_slow() -> bool:
                return await slowdown(cell) == pytest.approx(1 + 0.5 * 0.8 / 0.2)

            async def is_well() -> bool:
                return await slowdown(cell) == 1.0

            await stress(pcie_contention=0.8)
            await eventually(is_slow)
            assert await slowdown(other) == 1.0
            await stress()
            await eventually(is_well)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[1", "JSON"),
        (b'{"heat_w": 1}', "gpu"),
        (b'{"gpu": "GPU-0", "heat": 1}', "heat"),
        (b'{"gpu": "GPU-0", "heat_w": "hot"}', "hot"),
        (b'{"gpu": "GPU-0", "heat_w": -1}', "negative"),
        (b'{"gpu": "GPU-0", "pcie_contention": 1}', "below 1"),
        (b'{"gpu": "GPU-0", "cooling": 0}', "cooling"),
        (b'{"gpu": "GPU-9"}', "GPU-9"),
    ],
)
async def test_a_stress_that_cannot_be_is_refused(
    session: aiohttp.ClientSession, body: bytes, said: str
) -> None:
    async with (
        running_exporter(settings("http://127.0.0.1:9")) as exporter,
        session.post(f"{exporter.url}/lab/stress", data=body) as response,
    ):
        assert response.status == 400
        assert said in (await response.json())["error"]
