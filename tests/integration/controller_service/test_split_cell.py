"""One engine over two nodes: two agents and a controller, over real gRPC; only the collectors are fakes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from structlog.testing import capture_logs

from headrace_agent.collectors.readings import (
    EngineFacts,
    EngineReading,
    EngineState,
    Gpu,
    HardwareReading,
    HardwareSource,
    Health,
    Model,
    SourceReading,
    Status,
)
from headrace_agent.service import Agent
from headrace_agent.settings import AgentSettings
from headrace_controller.settings import ControllerSettings
from headrace_shared.clock import SystemClock
from tests.integration.agent_heartbeat.controller import settle
from tests.integration.controller_service.running import Running, serving, settings_of, until
from tests.support.agent_sources import Fakes

clock = SystemClock()


class Host:
    """One agent with fake collectors. `busy` is the figure of its GPUs."""

    def __init__(self, running: Running, node: str, tls: Any = None, **shape: Any) -> None:
        controller = {"address": f"127.0.0.1:{running.telemetry}", "tls": tls}
        self.settings = AgentSettings.model_validate(
            {"node": node, "site": "berlin", "controllers": [controller], "goodbye_grace_s": 30} | shape
        )
        self.node = node
        self.fakes = Fakes(*(cell.id for cell in self.settings.cells))
        for engine in self.fakes.engines.values():
            serves = clock.now() - 600
            facts = EngineFacts("vllm", "0.32.0", (Model("m", 4096),))
            engine.now = EngineReading(EngineState.SERVING, in_flight=1, serving_since=serves, facts=facts)
        self.read(0.25)

    def read(self, busy: float, lost: bool = False) -> None:
        """What the GPUs say from now on."""
        self.fakes.hardware.now[(0, 1)] = HardwareReading(
            source=HardwareSource.DCGM,
            signals={"compute_active": busy},
            health=Health(gpu_lost=lost),
            gpus=(Gpu(f"GPU-{self.node}-0"), Gpu(f"GPU-{self.node}-1")),
            sources=(SourceReading("dcgm", Status.OK),),
        )

    @asynccontextmanager
    async def up(self, polite: bool = True) -> AsyncIterator[Agent]:
        """The agent while the context is open; it says goodbye at its end unless it is cut off."""
        stop = asyncio.Event()
        agent = Agent(self.settings, build=self.fakes.build)
        task = asyncio.create_task(agent.run(stop), name=f"agent of {self.node}")
        try:
            yield agent
        finally:
            if polite:
                stop.set()
            else:
                task.cancel()
            await asyncio.wait([task], timeout=20)
            await settle()


def head(running: Running, *nodes: str, engine: int = 1, tls: Any = None) -> Host:
    cell = {
        "id": "c1",
        "url": f"http://127.0.0.1:{engine}",
        "gpus": [0, 1],
        "nodes": list(nodes),
    }
    return Host(running, "n1", tls, cells=[cell])


def worker(running: Running, node: str = "n2", tls: Any = None) -> Host:
    return Host(running, node, tls, members=[{"cell": "c1", "gpus": [0, 1]}])


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serving(settings_of()) as started:
        yield started


async def cell(running: Running) -> dict[str, Any]:
    return (await running.cells()).get("c1", {})


def reaches(running: Running, **wanted: Any) -> Any:
    """A condition: the cell's view has these fields."""

    async def holds() -> bool:
        found = await cell(running)
        return all(found.get(name) == value for name, value in wanted.items())

    return holds


def busy(running: Running, value: float) -> Any:
    async def holds() -> bool:
        signals = (await cell(running)).get("signals", {})
        return bool(signals.get("compute_active") == value)

    return holds


async def test_the_worst_of_both_nodes_counts_and_the_view_names_them(running: Running) -> None:
    first, second = head(running, "n2"), worker(running)
    second.read(0.75)
    async with first.up(), second.up():
        await until(reaches(running, state="READY", member_lost=False, fallback=""))
        await until(busy(running, 0.75))
        (member,) = (await cell(running))["members"]
        assert (member["node"], member["lost"], member["hardware_source"]) == ("n2", False, "dcgm")
        assert member["gpus"] == ["GPU-n2-0", "GPU-n2-1"]
        first.read(0.875)
        await until(busy(running, 0.875))
        page = (await running.get("/metrics"))[1]
        assert 'headrace_cell_member_up{cell="c1",node="n2",site="berlin"} 1.0' in page


@pytest.mark.parametrize("fault", ["xid", "lost"])
async def test_a_fatal_fault_on_the_worker_fails_the_cell_and_says_where(
    running: Running, fault: str
) -> None:
    second = worker(running)
    async with head(running, "n2").up(), second.up():
        await until(reaches(running, state="READY", member_lost=False, fallback=""))
        if fault == "xid":
            second.fakes.on_xid("GPU-n2-1", 79)
        else:
            second.read(0.25, lost=True)
        await until(reaches(running, state="FAILED"))
        assert "n2" in (await cell(running))["cause"]


async def test_a_worker_that_starts_first_is_heard_as_soon_as_its_head_speaks(running: Running) -> None:
    """Without waiting for the agent's next try, which is half a minute away."""
    second = worker(running)
    second.read(0.75)
    with capture_logs() as logs:
        async with second.up() as agent:
            stream = agent.streams[f"127.0.0.1:{running.telemetry}"]
            await until(_refused(stream, "c1"))
            async with head(running, "n2").up():
                await until(busy(running, 0.75))
                await until(_refused(stream))
    said = [line["why"] for line in logs if line["event"] == "cell refused by the controller"]
    assert [why.split(";")[0] for why in said] == ["no node has spoken for cell c1 yet"]


def _refused(stream: Any, *cells: str) -> Any:
    async def holds() -> bool:
        return sorted(stream._refused) == list(cells)

    return holds


async def test_a_node_that_the_head_does_not_name_is_refused_on_both_sides(running: Running) -> None:
    thief = worker(running, "n9")
    thief.read(1.0, lost=True)

    async def told() -> bool:
        return any(line["event"] == "cell refused by the controller" for line in logs)

    with capture_logs() as logs:
        async with head(running, "n2").up():
            await until(reaches(running, state="READY"))
            async with thief.up():
                thief.fakes.on_xid("GPU-n9-0", 79)
                refused = 'headrace_rejections_total{reason="member_refused"}'
                await until(_on_page(running, refused))
                await until(_on_page(running, 'headrace_rejections_total{reason="foreign_cell"}'))
                await until(told)
                found = await cell(running)
    assert (found["state"], found["signals"]["compute_active"]) == ("READY", 0.25)
    assert [member["node"] for member in found["members"]] == ["n2"]
    by_controller = [line for line in logs if line["event"] == "member refused"]
    by_agent = [line for line in logs if line["event"] == "cell refused by the controller"]
    assert by_controller[0]["node"] == "n9"
    assert "add it to the cell's nodes there" in by_agent[0]["why"]


def _on_page(running: Running, text: str) -> Any:
    async def holds() -> bool:
        return text in (await running.get("/metrics"))[1]

    return holds


@pytest.fixture
async def impatient() -> AsyncIterator[tuple[Running, int]]:
    """A controller to which two seconds are silence, and an engine that says that it lives."""
    settings = settings_of()
    lifecycle = settings.lifecycle.model_copy(update={"ttl_s": 2.0})
    app = web.Application()
    app.router.add_get("/health", _healthy)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        await web.SockSite(runner, listener).start()
        try:
            changed: ControllerSettings = settings.model_copy(update={"lifecycle": lifecycle})
            async with serving(changed) as started:
                yield started, listener.getsockname()[1]
        finally:
            await runner.cleanup()


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def test_a_worker_that_is_cut_off_marks_the_cell_until_it_is_back(
    impatient: tuple[Running, int],
) -> None:
    running, engine = impatient
    second = worker(running)
    second.read(0.75)
    async with head(running, "n2", engine=engine).up():
        async with second.up(polite=False):
            await until(busy(running, 0.75))
        await until(reaches(running, member_lost=True))
        assert (await cell(running))["state"] == "READY"
        await until(busy(running, 0.25))
        assert 'kind="member_lost",site="berlin"} 1.0' in (await running.get("/metrics"))[1]
        async with second.up():
            await until(reaches(running, member_lost=False))
            await until(busy(running, 0.75))


async def test_a_worker_that_is_upgraded_leaves_its_figures_in_force(impatient: tuple[Running, int]) -> None:
    running, engine = impatient
    second = worker(running)
    second.read(0.75)
    async with head(running, "n2", engine=engine).up():
        async with second.up():
            await until(busy(running, 0.75))
        for _ in range(30):
            await asyncio.sleep(0.1)
            found = await cell(running)
            assert (found["member_lost"], found["signals"]["compute_active"]) == (False, 0.75)


async def test_with_mutual_tls_a_member_is_who_its_certificate_says(tmp_path: Path) -> None:
    """The thief owns a certificate of its own and claims to be the node that the head names."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pairs: dict[str, dict[str, str]] = {}
    for name in ("127.0.0.1", "n1", "n2", "n9"):
        pair = authority.issue_cert(name, common_name=name)
        pair.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        pair.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        pairs[name] = {
            "ca": f"{tmp_path}/ca.pem",
            "cert": f"{tmp_path}/{name}.pem",
            "key": f"{tmp_path}/{name}.key",
        }
    own = pairs["127.0.0.1"]
    listener = f'telemetry_tls: {{ca: "{own["ca"]}", cert: "{own["cert"]}", key: "{own["key"]}"}}'
    async with serving(settings_of(tls=listener)) as running:
        thief = worker(running, "n2", tls=pairs["n9"])
        thief.read(1.0)
        async with head(running, "n2", tls=pairs["n1"]).up(), thief.up():
            await until(reaches(running, state="READY"))
            await until(_on_page(running, 'headrace_rejections_total{reason="wrong_identity"}'))
            assert (await cell(running))["signals"]["compute_active"] == 0.25
        real = worker(running, "n2", tls=pairs["n2"])
        real.read(0.75)
        async with head(running, "n2", tls=pairs["n1"]).up(), real.up():
            await until(busy(running, 0.75))
