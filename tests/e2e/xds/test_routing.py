"""A stock Envoy takes the whole configuration and routes by the body's model."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from headrace_controller.settings import EnvoySettings
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.stack import PATIENT_CHECKS_S, running_stack

JSON = {"content-type": "application/json"}


async def test_requests_go_where_their_model_is_served(tmp_path: Path) -> None:
    small, large = Cell("small"), Cell("large")
    async with (
        running_cells(small, large),
        running_stack(tmp_path, {"llama": {small: 1}, "org/qwen:7b": {large: 1}}) as stack,
    ):
        await stack.control.in_force()
        assert stack.control.status.nacks == 0
        for _ in range(3):
            assert (await stack.ask("llama")).body["cell"] == "small"
            assert (await stack.ask("org/qwen:7b")).body["cell"] == "large"
        answer = await stack.ask("llama")
        assert answer.upstream == small.address


async def test_content_types_that_mean_json_are_read(tmp_path: Path) -> None:
    cell = Cell("a")
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}) as stack:
        for kind in ("application/json", "Application/JSON; charset=utf-8"):
            answer = await stack.post(data=b'{"model":"m"}', headers={"content-type": kind})
            assert answer.status == 200, kind


async def test_only_generation_paths_reach_the_engines(tmp_path: Path) -> None:
    """A client must not put an engine to sleep or load adapters into it."""
    cell = Cell("a")
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}) as stack:
        for path in (
            "/v1/load_lora_adapter",
            "/sleep",
            "/v1/completions/",
            "/v1/completionsx",
            "/x/v1/completions",
        ):
            answer = await stack.post(path, data=b'{"model":"m"}', headers=JSON)
            assert (answer.status, answer.body["error"]["code"]) == (404, "path_not_served"), path
        assert cell.requests == 0
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/completions?x=1"):
            assert (await stack.post(path, data=b'{"model":"m"}', headers=JSON)).status == 200, path


@pytest.mark.parametrize("model", ["nope", 'qu"ote', "back\\slash", "ümlaut", "M", "m "])
async def test_an_unknown_model_is_a_404_that_names_it(tmp_path: Path, model: str) -> None:
    async with running_stack(tmp_path, {"m": {}}) as stack:
        answer = await stack.ask(model)
        assert answer.status == 404
        assert answer.body["error"]["code"] == "model_not_found"
        assert f"'{model}'" in answer.body["error"]["message"]


async def test_requests_without_a_model_get_a_clear_answer(tmp_path: Path) -> None:
    cell = Cell("a")
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}, "empty": {}}) as stack:
        listing = await stack.request("GET", "/v1/models")
        assert (listing.status, [each["id"] for each in listing.body["data"]]) == (200, ["empty", "m"])
        assert (await stack.request("GET", "/v1/models", headers=JSON)).status == 200
        for body in (b'{"prompt":"x"}', b"[1]", b'{"model":null}', b'{"model":{"m":1}}', b'{"model":""}'):
            answer = await stack.post(data=body, headers=JSON)
            assert (answer.status, answer.body["error"]["code"]) == (400, "model_missing"), body
        for body in (b"{bad", b"\xff\xfe", b'{"model":"m"'):
            answer = await stack.post(data=body, headers=JSON)
            assert (answer.status, answer.body["error"]["code"]) == (400, "invalid_json"), body
        form = await stack.post(data=b"model=m", headers={"content-type": "text/plain"})
        assert form.body["error"]["code"] == "invalid_json"
        assert (await stack.request("GET", "/metrics")).status == 404
        assert cell.requests == 0


async def test_a_pool_without_a_ready_cell_says_503_and_when_to_come_back(tmp_path: Path) -> None:
    settings = EnvoySettings(retry_after_s=7)
    async with running_stack(tmp_path, {"empty": {}}, settings) as stack:
        answer = await stack.ask("empty")
        assert (answer.status, answer.headers["retry-after"]) == (503, "7")
        assert answer.body["error"]["code"] == "no_ready_replica"
        assert "'empty'" in answer.body["error"]["message"]


async def test_long_prompts_pass_and_oversized_ones_are_refused(tmp_path: Path) -> None:
    cell = Cell("a")
    settings = EnvoySettings(max_request_bytes=2_000_000, health_check_timeout_s=PATIENT_CHECKS_S)
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}, settings) as stack:
        answer = await stack.ask(prompt="x" * 1_500_000)
        assert (answer.status, answer.body["length"]) == (200, 1_500_000)
        refused = await stack.ask(prompt="x" * 4_000_000)
        assert (refused.status, refused.body["error"]["code"]) == (413, "request_too_large")


async def test_a_long_list_of_models_fits_the_answer(tmp_path: Path) -> None:
    """Envoy's default limit for direct answers is 4 KB."""
    models = [f"organisation/model-number-{number:03}" for number in range(100)]
    async with running_stack(tmp_path, {model: {} for model in models}) as stack:
        listing = await stack.request("GET", "/v1/models")
        assert [each["id"] for each in listing.body["data"]] == models


async def test_clients_cannot_set_time_outs_or_retries(tmp_path: Path) -> None:
    cell = Cell("slow")
    cell.delay_s = 0.3
    async with running_cells(cell), running_stack(tmp_path, {"m": {cell: 1}}) as stack:
        body = io.BytesIO(json.dumps({"model": "m"}).encode())
        hostile = {**JSON, "x-envoy-upstream-rq-timeout-ms": "20", "x-forwarded-for": "10.0.0.1"}
        assert (await stack.post(data=body, headers=hostile)).status == 200
