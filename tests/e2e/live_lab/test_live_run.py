"""One short live scenario from end to end: real agent, controller and Envoy, a kill, a result."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from headrace_lab.live.ask import Ask, Options, look_up
from headrace_lab.live.run import live
from tests.e2e.live_lab.small import small_catalogue


async def test_a_kill_is_seen_rerouted_and_written_down(tmp_path: Path) -> None:
    path = tmp_path / "kill.json"
    options = Options(
        "failover",
        kind="kill",
        arms=("weights",),
        load="edge_chat",
        rps=8.0,
        seconds=15.0,
        json_path=path,
        keep_logs=tmp_path / "logs",
    )
    ask: Ask = look_up(options, small_catalogue())
    said = StringIO()
    code = await live(ask, Console(file=said, width=150))
    assert code == 0, said.getvalue()

    result = json.loads(path.read_text(encoding="utf-8"))
    assert {"scenario", "mode", "seed", "seconds", "fleet", "arms", "figures"} <= set(result)
    assert (result["scenario"], result["mode"], result["kind"]) == ("failover", "live", "kill")
    arm = result["arms"]["weights"]
    assert set(arm) == {"requests", "success_rate", "ttft_ms", "e2e_ms", "per_cell"}
    assert arm["requests"] > 80
    assert set(arm["per_cell"]) == {"east-1", "east-2", "west-1"}

    faults = result["faults"]["weights"]
    assert [fault["kind"] for fault in faults] == ["kill"] * len(faults)
    assert len(faults) >= 1
    figures = result["figures"]
    assert figures["faults.weights"] == len(faults)
    assert figures["undetected.weights"] == 0
    assert 0 < figures["detect_ms_p50"] < 5000
    assert figures["post_kill_success.weights"] > 0.9
    assert figures["after_fault_requests.weights"] > 20
    assert arm["success_rate"] == 1.0, "the clients try again, so nothing is lost in the end"

    lines = [json.loads(line) for line in path.with_suffix(".ndjson").read_text("utf-8").splitlines()]
    assert len(lines) == arm["requests"]
    assert {line["arm"] for line in lines} == {"weights"}
    page = (tmp_path / "kill.weights.controller.metrics.txt").read_text(encoding="utf-8")
    assert "headrace_transitions_total" in page
    assert result["checks"]["longest time without a sample"]["ok"]
