"""An Envoy of somebody's own, with the lines that the documentation shows and no others."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from headrace_controller.settings import GatewaySettings, PickerSettings
from headrace_shared.net import HostPort
from tests.e2e.picker.stack import MODEL, PickedControl
from tests.e2e.xds.cells import Cell, running_cells
from tests.e2e.xds.own_config import own_stack
from tests.e2e.xds.stack import GATEWAY, Stack, until

DOCUMENT = Path(__file__).parents[3] / "docs" / "picker.md"


def shown() -> list[Any]:
    """The pieces of configuration, in the order in which they are shown."""
    section = DOCUMENT.read_text().partition("## An Envoy of your own")[2].partition("\n## ")[0]
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)]


def with_picker(tree: dict[str, Any]) -> None:
    """Put them where the text says."""
    filters, policy = shown()
    (listener,) = tree["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    *_, processor = filters
    (named,) = processor["typed_config"]["grpc_service"]["initial_metadata"]
    named["value"] = GATEWAY
    # Far longer than is shown: on a busy machine a pick may take its time, and that is not the point.
    processor["typed_config"]["message_timeout"] = "5s"
    manager["http_filters"] = [*filters, *manager["http_filters"]]
    pool = tree["static_resources"]["clusters"][0]
    del pool["lb_policy"]
    pool.update(policy)
    pool["eds_cluster_config"]["service_name"] = f"pool/{MODEL}"


@asynccontextmanager
async def own(directory: Path, weights: Mapping[Cell, int]) -> AsyncIterator[tuple[Stack, PickedControl]]:
    gateway = GatewaySettings(id=GATEWAY, host="127.0.0.1", listen=HostPort("127.0.0.1", 1))
    control = PickedControl(gateway, PickerSettings(enabled=True, trickle=0.0))
    control.picker.line_up(weights)
    await control.start()
    control.publish({MODEL: weights})
    try:
        async with own_stack(control, directory, change=with_picker) as stack:
            yield stack, control
    finally:
        await control.stop()


async def served_by(stack: Stack, count: int = 20, **more: Any) -> Counter[str]:
    answers = await asyncio.gather(*(stack.ask(**more) for _ in range(count)))
    assert {answer.status for answer in answers} == {200}
    return Counter(answer.body["cell"] for answer in answers)


async def test_the_lines_that_are_shown_are_all_that_is_needed(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), own(tmp_path, {a: 1, b: 100}) as (stack, control):
        control.picker.script = (a.address,)
        assert await served_by(stack, user="somebody", max_tokens=7) == {"a": 20}
        asked = control.picker.asks[-1]
        assert (asked.model, asked.output, asked.session) == (MODEL, 7, "somebody")
        assert asked.key
        assert asked.size
        assert asked.streams is False
        for name in ("max_completion_tokens", "max_output_tokens"):
            assert await served_by(stack, 1, **{name: 9}) == {"a": 1}
            assert control.picker.asks[-1].output == 9, name
        await until(lambda: len(control.served) == 0 or control.picker.book.open_requests == 0)


async def test_the_first_token_of_a_stream_is_learned_of(tmp_path: Path) -> None:
    a = Cell("a")
    async with running_cells(a), own(tmp_path, {a: 1}) as (stack, control):
        await stack.ask(stream=True)
        assert control.picker.asks[-1].streams
        await until(lambda: len(control.served) == 1)
        assert (control.served[0].cell, control.served[0].as_named) == ("a", True)
        assert control.served[0].observed_s is not None


async def test_it_fails_open_and_obeys_no_client(tmp_path: Path) -> None:
    a, b = Cell("a"), Cell("b")
    async with running_cells(a, b), own(tmp_path, {a: 100, b: 1}) as (stack, control):
        control.picker.on = False
        body = {"endpoints": b.address, "headrace-pick": {"endpoints": b.address}}
        assert (await served_by(stack, **body))["a"] >= 18
        control.picker.on, control.picker.script = True, ("10.9.9.9:1",)
        assert (await served_by(stack))["a"] >= 18
        await control.stop()
        assert (await served_by(stack))["a"] >= 18
