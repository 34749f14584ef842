"""A live run with a WAN before its sites, played at the socket: no root, no network devices."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headrace_lab.live.ask import Options, look_up
from headrace_lab.live.run import live
from tests.e2e.live_lab.small import small_catalogue


async def test_a_far_site_is_far_and_the_result_says_what_that_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_lab.live.run.may_make_networks", lambda: False)
    path = tmp_path / "jitter.json"
    options = Options("jitter", arms=("v2", "v3"), rps=8.0, seconds=8.0, json_path=path)
    said = StringIO()
    code = await live(look_up(options, small_catalogue()), Console(file=said, width=150))
    assert code == 0, said.getvalue()

    result = json.loads(path.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in path.with_suffix(".ndjson").read_text("utf-8").splitlines()]
    served = {
        cell: [line["ttft_ms"] for line in lines if line["cell"] == cell] for cell in ("west-1", "east-1")
    }
    assert min(served["west-1"]) >= 150, "the path cannot be passed faster than its round trip"
    assert min(served["east-1"]) < 150
    assert all(arm["success_rate"] == 1.0 for arm in result["arms"].values())
    assert any("at the socket" in note for note in result["notes"])
    assert "ttft_p95_ms.v3.far" in result["figures"]
    assert not [name for name in result["figures"] if name.startswith("network_gain")]
