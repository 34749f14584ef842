"""Which pool a request comes to, by what it says of its model, in a real Envoy."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.routing.engines import Engine
from tests.e2e.routing.region import running_region

JSON = {"content-type": "application/json"}


async def test_models_adapters_and_aliases_of_one_gateway(tmp_path: Path) -> None:
    llama = Engine("llama", models=("org/llama-3", "llama-sql"))
    both = Engine("both", models=("qwen",))
    aliases = {"gpt-4": "org/llama-3", "gone": "nobody", "qwen": "org/llama-3"}
    async with running_region(tmp_path, llama, both, aliases=aliases) as region:
        await region.in_force()
        for asked, cell, served in (
            ("org/llama-3", "llama", "org/llama-3"),
            ("llama-sql", "llama", "llama-sql"),
            ("qwen", "both", "qwen"),
            ("gpt-4", "llama", "org/llama-3"),
        ):
            answer = await region.ask(asked, temperature=0.25, stop=["ä"])
            assert (answer.status, answer.body) == (200, {"cell": cell, "model": served}), asked
        # What an alias stands for is all that is changed.
        assert llama.bodies[-1] == {
            "model": "org/llama-3",
            "prompt": "hello",
            "temperature": 0.25,
            "stop": ["ä"],
        }
        for unknown in ("gone", "llama"):
            answer = await region.ask(unknown)
            assert (answer.status, answer.body["error"]["code"]) == (404, "model_not_found")


async def test_an_alias_takes_long_prompts(tmp_path: Path) -> None:
    cell = Engine("a", max_model_len=1_000_000)
    async with running_region(tmp_path, cell, aliases={"other": "m"}) as region:
        answer = await region.ask("other", prompt="x" * 1_500_000)
        assert (answer.status, answer.body["model"]) == (200, "m")
        assert cell.bodies[-1]["prompt"] == "x" * 1_500_000


@pytest.mark.parametrize("model", ["100%", "%REQ(authorization)%", "{a}", 'a"b'])
async def test_an_alias_stands_for_any_name(tmp_path: Path, model: str) -> None:
    """Also for one in which Envoy would see a command."""
    cell = Engine("a", models=(model,))
    async with running_region(tmp_path, cell, aliases={"other": model}) as region:
        await region.in_force()
        answer = await region.ask("other")
        assert (answer.status, answer.body) == (200, {"cell": "a", "model": model})


async def test_the_gateway_lists_the_models_that_it_knows(tmp_path: Path) -> None:
    cell = Engine("a", max_model_len=4096, models=("org/llama-3", "sql"))
    async with running_region(tmp_path, cell, aliases={"gpt-4": "org/llama-3"}) as region:
        listing = await region.send("GET", "/v1/models")
        assert [(each["id"], each["max_model_len"]) for each in listing.body["data"]] == [
            ("org/llama-3", 4096),
            ("sql", 4096),
            ("gpt-4", 4096),
        ]
        for path in ("org/llama-3", "org%2Fllama-3", "org/llama-3?x=1"):
            entry = await region.send("GET", f"/v1/models/{path}")
            assert (entry.status, entry.body["id"], entry.body["object"]) == (200, "org/llama-3", "model")
        missing = await region.send("GET", "/v1/models/llama")
        assert (missing.status, missing.body["error"]["code"]) == (404, "model_not_found")
        more = Engine("b", models=("new",))
        await more.start()
        try:
            region.publish([cell, more])
            await region.in_force()
            listing = await region.send("GET", "/v1/models")
            assert [each["id"] for each in listing.body["data"]] == ["new", "org/llama-3", "sql", "gpt-4"]
        finally:
            await more.stop()


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses", "/v1/rerank", "/score", "/v1/messages"])
async def test_what_else_has_a_model_in_json_is_routed_alike(tmp_path: Path, path: str) -> None:
    async with running_region(tmp_path, Engine("a")) as region:
        answer = await region.send(path=path, data=b'{"model": "m", "input": "x"}', headers=JSON)
        assert (answer.status, answer.body["cell"]) == (200, "a")


async def test_a_form_names_its_model_in_a_header(tmp_path: Path) -> None:
    speech, other = Engine("speech", models=("whisper",)), Engine("other", models=("m",))
    async with running_region(tmp_path, speech, other) as region:

        def form() -> aiohttp.FormData:
            data = aiohttp.FormData()
            data.add_field("model", "whisper")
            data.add_field("file", b"\x00RIFF" * 1000, filename="a.wav", content_type="audio/wav")
            return data

        path = "/v1/audio/transcriptions"
        answer = await region.send(path=path, data=form(), headers={"x-headrace-model": "whisper"})
        assert (answer.status, answer.body) == (200, {"cell": "speech", "model": "whisper"})
        unnamed = await region.send(path=path, data=form())
        assert (unnamed.status, unnamed.body["error"]["code"]) == (400, "model_missing")
        assert "x-headrace-model" in unnamed.body["error"]["message"]
        unknown = await region.send(path=path, data=form(), headers={"x-headrace-model": 'no"ne'})
        assert (unknown.status, unknown.body["error"]["code"]) == (404, "model_not_found")
        assert "'no\"ne'" in unknown.body["error"]["message"]
        # What the body says goes before what the header says.
        both = await region.send(
            data=json.dumps({"model": "m", "prompt": "x"}), headers={**JSON, "x-headrace-model": "whisper"}
        )
        assert (both.status, both.body["cell"]) == (200, "other")


async def test_what_is_not_served_says_what_is(tmp_path: Path) -> None:
    cell = Engine("a")
    async with running_region(tmp_path, cell) as region:
        for method, path in (
            ("GET", "/"),
            ("GET", "/metrics"),
            ("GET", "/v1/realtime"),
            ("POST", "/sleep"),
            ("DELETE", "/v1/models/m"),
            ("POST", "/v1/models"),
            ("POST", "/v1/models/m"),
            ("POST", "/v1/completions/x"),
            ("GET", "/v1/modelsx"),
        ):
            answer = await region.send(method, path, data=b'{"model": "m"}', headers=JSON)
            error = answer.body["error"]
            assert (answer.status, error["code"]) == (404, "path_not_served"), (method, path)
            assert "/v1/chat/completions" in error["message"]
            assert f"'{path}'" in error["message"]
        assert not cell.bodies
        nothing = await region.send(data=b"{}", headers=JSON)
        assert (nothing.status, nothing.body["error"]["code"]) == (400, "model_missing")


async def test_a_websocket_is_refused_clearly(tmp_path: Path) -> None:
    async with running_region(tmp_path, Engine("a")) as region:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            async with region.session.ws_connect(f"http://127.0.0.1:{region.port}/v1/realtime?model=m"):
                pass
        assert refusal.value.status == 404
        upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        for path in ("/v1/realtime", "/v1/completions"):
            answer = await region.send("GET", path, headers={**upgrade, "sec-websocket-key": "x" * 16})
            assert (answer.status, answer.body["error"]["code"]) == (404, "path_not_served"), path
