"""The controller as a whole: agents in, weights out, with TLS, over a restart."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from envoy.service.discovery.v3 import ads_pb2_grpc

from headrace_controller import service
from headrace_controller.control import keeper
from headrace_controller.control.intents.records import Actor
from headrace_controller.control.kept_fleet import FILE_NAME, KeptFleet
from headrace_controller.control.loop import ControlLoop
from headrace_controller.xds.names import CDS
from headrace_shared.net import PortInUseError
from headrace_shared.tls import TlsSettings, channel_credentials
from tests.integration.controller_service.node import FULL, beating, speaking
from tests.integration.controller_service.running import Running, serving, settings_of, strict, until
from tests.integration.controller_xds.client import AdsClient
from tests.support.program import assert_free
from tests.unit.controller.xds.builders import delta_request, request


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with ca.pem and the pairs server, n1, n2 and gw-1."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name, identity in (("server", "127.0.0.1"), ("n1", "n1"), ("n2", "n2"), ("gw-1", "gw-1")):
        pair = authority.issue_cert(identity, common_name=identity)
        pair.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        pair.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    return tmp_path


def files(folder: Path, name: str) -> TlsSettings:
    return TlsSettings(ca=folder / "ca.pem", cert=folder / f"{name}.pem", key=folder / f"{name}.key")


def listener(folder: Path, field: str) -> str:
    tls = files(folder, "server")
    return f'{field}: {{ca: "{tls.ca}", cert: "{tls.cert}", key: "{tls.key}"}}'


async def test_what_an_agent_says_becomes_weights_and_pages() -> None:
    async with serving(settings_of()) as running, speaking(running.telemetry) as node:
        assert (await running.get("/readyz"))[0] == 503
        assert (await running.get("/healthz"))[0] == 200
        await node.serve()
        assert node.welcome is not None
        assert [each.id for each in node.welcome.gateways] == ["gw-1"]
        async with beating(node):
            await until(running.serving_c1)
            assert await running.get("/readyz") == (200, "weights are published\n")
            cell = (await running.cells())["c1"]
            assert (cell["state"], cell["weights"]) == ("READY", {"gw-1": 100})
            assert cell["address"] == "127.0.0.1:1"
            events = strict((await running.get("/api/v1/events"))[1])["events"]
    assert [each["to"] for each in events] == ["LOADING", "READY"]
    for address in (running.settings.listen.telemetry, running.settings.listen.xds):
        assert_free(address.port)


async def test_figures_that_are_absent_are_null_and_never_nan() -> None:
    """Three views: before any beat, with nothing measured, and with one signal alone."""
    async with serving(settings_of()) as running, speaking(running.telemetry) as node:
        await node.hello()
        cell = (await running.cells())["c1"]
        assert set(cell["signals"].values()) == {None}
        assert (cell["pressure"], cell["in_flight"], cell["error_rate"]) == (None, None, None)
        await node.beat()
        await until(running.serving_c1)
        cell = (await running.cells())["c1"]
        assert set(cell["signals"].values()) == {None}
        await node.beat(kv_fill=0.5)

        async def one_alone() -> bool:
            signals = (await running.cells())["c1"]["signals"]
            return {name: value for name, value in signals.items() if value is not None} == {"kv_fill": 0.5}

        await until(one_alone)
        assert "NaN" not in (await running.get("/metrics"))[1]


async def test_agents_with_mutual_tls_are_who_their_certificates_say(certificates: Path) -> None:
    settings = settings_of(tls=listener(certificates, "telemetry_tls"))
    async with serving(settings) as running:
        own = channel_credentials(files(certificates, "n1"), "tls")
        async with speaking(running.telemetry, credentials=own) as node:
            await node.serve()
            await until(running.serving_c1)
        other = channel_credentials(files(certificates, "n2"), "tls")
        async with speaking(running.telemetry, credentials=other) as node:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await node.hello()
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        nobody = channel_credentials(TlsSettings(ca=certificates / "ca.pem"), "tls")
        for credentials in (nobody, None):
            async with speaking(running.telemetry, "n3", credentials=credentials) as node:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await node.hello()
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert 'reason="wrong_identity"} 1.0' in (await running.get("/metrics"))[1]
        assert list(await running.cells()) == ["c1"]


async def test_envoys_over_tls(certificates: Path) -> None:
    settings = settings_of(tls=listener(certificates, "xds_tls"))
    own = channel_credentials(files(certificates, "gw-1"), "tls")
    async with serving(settings) as running, speaking(running.telemetry) as node:
        await node.serve()
        async with grpc.aio.secure_channel(f"127.0.0.1:{running.xds}", own) as channel:
            call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
            envoy = AdsClient(call, "gw-1")
            await envoy.ask(CDS)
            assert [each.type_url for each in (await envoy.take(10)).resources]
            call.cancel()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.xds}") as channel:
            call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
            assert await call.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("delta", [False, True])
async def test_who_holds_another_certificate_is_sent_nothing_of_a_gateway(
    certificates: Path, delta: bool
) -> None:
    """A node's, of the same authority: what gateways are sent holds the keys of engines."""
    settings = settings_of(tls=listener(certificates, "xds_tls"))
    others = channel_credentials(files(certificates, "n1"), "tls")
    async with (
        serving(settings) as running,
        grpc.aio.secure_channel(f"127.0.0.1:{running.xds}", others) as channel,
    ):
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        call = stub.DeltaAggregatedResources() if delta else stub.StreamAggregatedResources()
        await call.write((delta_request if delta else request)(CDS, node="gw-1"))
        async with asyncio.timeout(30):
            assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "does not name gateway 'gw-1'" in await call.details()
        assert 'reason="xds_wrong_identity"} 1.0' in (await running.get("/metrics"))[1]


@pytest.fixture
def quick_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "INTERVAL_S", 0.05)


@pytest.mark.usefixtures("quick_keeper")
async def test_a_second_controller_starts_from_what_the_first_kept(tmp_path: Path) -> None:
    """And it waits for the agents it knows, however short its barrier would be for a cold start."""
    path = tmp_path / "deep" / FILE_NAME

    async def kept() -> bool:
        fleet = KeptFleet.model_validate_json(path.read_bytes()) if path.exists() else None
        return fleet is not None and [(each.id, each.ready) for each in fleet.cells] == [("c1", True)]

    async with (
        serving(settings_of(state_dir=path.parent)) as running,
        speaking(running.telemetry) as node,
    ):
        assert not path.exists()
        await node.serve()
        async with beating(node):
            await until(running.serving_c1)
            await until(kept)
            before = (await running.cells())["c1"]["weights"]
    assert KeptFleet.model_validate_json(path.read_bytes()).cells[0].weights == {"m": before}

    async with serving(settings_of(state_dir=path.parent, barrier=30)) as running:
        assert await running.get("/readyz") == (503, "waiting for agents; Envoys keep what they hold\n")
        assert list(await running.cells()) == ["c1"]
        async with speaking(running.telemetry) as node:
            await node.serve()
            await until(running.serving_c1, seconds=20)
            assert await running.ready()
            cell = (await running.cells())["c1"]
            assert (cell["state"], cell["weights"]) == ("READY", before)


async def test_a_control_loop_that_breaks_ends_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(ControlLoop, "tick", broken)
    settings = settings_of()
    async with asyncio.timeout(30):
        with pytest.raises(RuntimeError, match="planted"):
            await service.run(settings, asyncio.Event())
    for address in (settings.listen.telemetry, settings.listen.xds, settings.listen.admin):
        assert_free(address.port)


async def headrace(running: Running, *arguments: str) -> tuple[int, Any]:
    """The operator's command against this controller: its exit code, and what it printed as JSON."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace_controller.operator_cli"),
        *(*arguments, "--json", "--url", running.admin),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    return process.returncode or 0, json.loads(said)


async def test_an_operator_drains_a_cell_and_takes_it_back() -> None:
    async with serving(settings_of()) as running, speaking(running.telemetry) as node:
        await node.serve()
        async with beating(node):
            await until(running.serving_c1)
            assert await headrace(running, "drain", "c1") == (0, {"cell": "c1", "state": "DRAINING"})
            async with asyncio.timeout(30):
                message = await node.call.read()
            assert message.directive.drain.cell_id == "c1"
            code, view = await headrace(running, "status")
            assert (code, view["sites"][0]["states"]) == (0, {"DRAINING": 1})
            assert await headrace(running, "undrain", "c1") == (0, {"cell": "c1", "state": "READY"})
            code, found = await headrace(running, "events")
            states = [each["to"] for each in found["events"] if each["kind"] == "state"]
            assert states[-2:] == ["DRAINING", "READY"]


async def test_an_operator_sees_at_once_what_was_asked() -> None:
    """A view kept from before the drain would call the cell READY."""
    async with serving(settings_of()) as running, speaking(running.telemetry) as node:
        await node.serve()
        async with beating(node):
            await until(running.serving_c1)
            views, operators = running.controller.desk.views, running.controller.desk.operators
            for wish, state in (
                (lambda by: operators.drain("c1", "", None, by), "DRAINING"),
                (lambda by: operators.undrain("c1", "", by), "READY"),
            ):
                views.fleet()
                wish(Actor("anna"))
                assert [cell.state for cell in views.fleet().cells] == [state]
            assert FULL.keys() <= {
                name for name, value in views.fleet().cells[0].signals.items() if value is not None
            }


@pytest.mark.parametrize("name", ["telemetry", "xds", "admin"])
async def test_a_port_that_is_taken_at_the_last_moment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Between the look and the bind another program may be quicker."""
    monkeypatch.setattr(service, "require_free", lambda *_: None)
    settings = settings_of()
    address = getattr(settings.listen, name)
    with socket.create_server((address.host, address.port)):
        async with asyncio.timeout(30):
            with pytest.raises(PortInUseError, match=rf"^listen\.{name}: {address} is already in use"):
                await service.run(settings, asyncio.Event())
    for other in ("telemetry", "xds", "admin"):
        assert_free(getattr(settings.listen, other).port)
