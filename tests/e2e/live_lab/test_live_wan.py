"""A live run with a WAN before its sites: real packets through namespaces. Needs root."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headrace_lab.live.ask import Options, look_up
from headrace_lab.live.run import live
from tests.e2e.live_lab.small import small_catalogue

pytestmark = pytest.mark.extra


async def test_a_far_site_is_far_and_weighs_less(tmp_path: Path) -> None:
    path = tmp_path / "jitter.json"
    options = Options("jitter", arms=("v3",), rps=8.0, seconds=12.0, json_path=path)
    said = StringIO()
    code = await live(look_up(options, small_catalogue()), Console(file=said, width=150))
    assert code == 0, said.getvalue()

    result = json.loads(path.read_text(encoding="utf-8"))
    assert list(result["arms"]) == ["v3.far"]
    lines = [json.loads(line) for line in path.with_suffix(".ndjson").read_text("utf-8").splitlines()]
    served = {
        cell: [line["ttft_ms"] for line in lines if line["cell"] == cell] for cell in ("west-1", "east-1")
    }
    assert min(served["west-1"]) >= 150, "the path cannot be passed faster than its round trip"
    assert min(served["east-1"]) < 150
    shares = {cell: row["share"] for cell, row in result["arms"]["v3.far"]["per_cell"].items()}
    assert shares["west-1"] < min(shares["east-1"], shares["east-2"])
    assert not [name for name in os.listdir("/run/netns") if name.startswith(f"hrlab{os.getpid()}")]


def ttft(lines: list[dict[str, Any]], cell: str) -> list[float]:
    return [line["ttft_ms"] for line in lines if line["cell"] == cell]
