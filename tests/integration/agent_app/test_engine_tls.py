"""Engines behind TLS and API keys: whom the agent believes, what it shows, and what it says of trouble."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
from structlog.testing import capture_logs

from headrace_agent.collectors.app.http import trust
from headrace_agent.collectors.readings import EngineState, Status
from headrace_agent.settings import EngineTlsSettings
from tests.integration.agent_app.collecting import collecting, fast
from tests.integration.agent_app.fake_engine import fake_engine
from tests.integration.agent_app.raw_server import raw_server


class Files:
    """An authority, and what it has signed, as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca.cert_pem.write_to_path(folder / "ca.pem")

    def pair(self, name: str, identity: str) -> None:
        """Write NAME.pem and NAME.key."""
        issued = self.ca.issue_cert(identity)
        issued.private_key_pem.write_to_path(self.folder / f"{name}.key")
        for i, blob in enumerate(issued.cert_chain_pems):
            blob.write_to_path(self.folder / f"{name}.pem", append=i > 0)

    def engine(self, name: str = "127.0.0.1", asks_clients: bool = False) -> ssl.SSLContext:
        """What an engine of this name serves with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(name).configure_cert(context)
        if asks_clients:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def settings(self, **more: object) -> EngineTlsSettings:
        return EngineTlsSettings.model_validate({"ca": self.folder / "ca.pem", **more})


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def test_everything_that_is_asked_goes_through_tls(files: Files) -> None:
    """Probe, page, models and warm-up; and the engine's death is seen at once all the same."""
    async with fake_engine(tls=files.engine()) as engine:
        tls = files.settings()
        async with collecting(engine.url, fast(probe_interval_s=10), tls=tls) as seen:
            await seen.until_state(EngineState.SERVING)
            assert seen.kinds == ["loading", "serving"]
            assert engine.asked.keys() >= {"/health", "/metrics", "/v1/models", "/v1/completions"}
            assert seen.reading.source.status is Status.OK
            killed_at = seen.now()
            await engine.die()
            await seen.until_state(EngineState.DOWN)
            assert seen.times[-1] - killed_at < 8.0, "the idle connection tells, not the next probe"


async def test_an_engine_that_asks_for_a_certificate_is_shown_one(files: Files) -> None:
    files.pair("agent", "host-1.example")
    tls = files.settings(cert=files.folder / "agent.pem", key=files.folder / "agent.key")
    async with (
        fake_engine(tls=files.engine(asks_clients=True)) as engine,
        collecting(engine.url, tls=tls) as seen,
    ):
        await seen.until_state(EngineState.SERVING)


async def test_an_engine_that_asks_for_a_certificate_in_vain_is_not_serving_and_it_is_said(
    files: Files,
) -> None:
    async with (
        fake_engine(tls=files.engine(asks_clients=True)) as engine,
        collecting(engine.url, tls=files.settings()) as seen,
    ):
        await seen.until(lambda: "set the cell's tls.cert and tls.key" in seen.reading.source.detail)
        assert seen.reading.state is not EngineState.SERVING


async def test_a_certificate_in_another_name_needs_the_server_name(files: Files) -> None:
    async with fake_engine(tls=files.engine("engine.example")) as engine:
        async with collecting(engine.url, tls=files.settings()) as seen:
            await seen.until(lambda: "set the cell's tls.server_name" in seen.reading.source.detail)
        async with collecting(engine.url, tls=files.settings(server_name="engine.example")) as seen:
            await seen.until_state(EngineState.SERVING)


async def test_the_systems_authorities_are_trusted_where_no_other_is_named(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = ssl.create_default_context()
    files.ca.configure_trust(system)
    monkeypatch.setattr(trust, "_system", lambda: system)
    async with fake_engine(tls=files.engine()) as engine, collecting(engine.url) as seen:
        await seen.until_state(EngineState.SERVING)


async def test_a_certificate_that_nobody_vouches_for_is_said_and_proves_nothing_at_once(files: Files) -> None:
    async with (
        fake_engine(tls=files.engine()) as engine,
        collecting(engine.url, fast(hung_after_s=3)) as seen,
    ):
        await seen.until(lambda: "certificate verify failed" in seen.reading.source.detail)
        assert seen.kinds == []
        await seen.until_state(EngineState.DOWN)
        assert "set the cell's tls.ca to the authority" in seen.events[0].cause


async def test_tls_spoken_to_a_plain_engine_is_said(files: Files) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    async with (
        raw_server(plain) as port,
        collecting(f"https://127.0.0.1:{port}", tls=files.settings()) as seen,
    ):
        await seen.until(lambda: "write http:// in the cell's url" in seen.reading.source.detail)


async def test_renewed_files_are_taken_up_and_half_written_ones_are_not(files: Files) -> None:
    """The engine comes back with a certificate of another authority, whose file has been renewed."""
    renewed = trustme.CA()
    async with (
        fake_engine(tls=files.engine()) as engine,
        collecting(engine.url, tls=files.settings()) as seen,
    ):
        await seen.until_state(EngineState.SERVING)
        with capture_logs() as logs:
            (files.folder / "ca.pem").write_text("half written")
            await engine.die()
            await seen.until_state(EngineState.DOWN)
            await engine.listen()
            await seen.until_state(EngineState.SERVING)
        said = [line for line in logs if line["event"].startswith("renewed TLS files cannot be used")]
        assert len(said) == 1
        renewed.cert_pem.write_to_path(files.folder / "ca.pem")
        await engine.die()
        await seen.until_state(EngineState.DOWN)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        renewed.issue_cert("127.0.0.1").configure_cert(context)
        engine.tls = context
        await engine.listen()
        await seen.until_state(EngineState.SERVING)


async def test_a_key_is_shown_where_the_engine_asks_for_one(tmp_path: Path) -> None:
    """Some engines lock their metrics page too, and what stands before them may lock all."""
    key_file = tmp_path / "key"
    key_file.write_text("s3cret")
    async with fake_engine() as engine:
        engine.key, engine.locked = "s3cret", {"/metrics", "/health", "/v1/models", "/v1/completions"}
        async with collecting(engine.url, key_file=key_file) as seen:
            await seen.until_state(EngineState.SERVING)
            await seen.until(lambda: seen.reading.source.status is Status.OK)
            # A rotated key is taken up without an interruption.
            key_file.write_text("n3w")
            engine.key = "n3w"
            asked = engine.asked["/health"]
            await seen.until(lambda: engine.asked["/health"] > asked + 5)
            await seen.until(lambda: seen.reading.source.status is Status.OK)
            assert seen.kinds == ["loading", "serving"]


async def test_a_key_that_is_not_taken_is_said(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("wrong")
    async with fake_engine() as engine:
        engine.key, engine.locked = "s3cret", {"/v1/models", "/v1/completions"}
        async with collecting(engine.url, key_file=key_file) as seen:
            await seen.until(lambda: "give the cell's api_key_file a valid key" in seen.reading.source.detail)
            assert seen.reading.state is EngineState.LOADING
