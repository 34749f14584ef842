"""`lead-time` live, cut short: a GPU is put under stress, slows its engine, and the warnings are read."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from headrace_lab.live.ask import Options, look_up
from headrace_lab.live.run import live
from tests.e2e.live_lab.small import small_catalogue


async def test_a_gpu_without_cooling_is_warned_of(tmp_path: Path) -> None:
    catalogue = small_catalogue()
    scenario = catalogue.scenario("lead-time")
    assert scenario.lead is not None
    quick = scenario.lead.live.model_copy(
        update={"time_constant_s": 1.5, "first_s": 6.0, "rest_s": 1.0, "unloaded_s": 5.0}
    )
    lead = scenario.lead.model_copy(update={"stresses": ("thermal",), "live": quick})
    scenario = scenario.model_copy(update={"lead": lead, "fleet": catalogue.scenario("failover").fleet})
    small = catalogue.model_copy(update={"scenarios": {**catalogue.scenarios, "lead-time": scenario}})
    path, said = tmp_path / "lead.json", StringIO()
    options = Options("lead-time", arms=("weights",), rps=6.0, seconds=21.0, json_path=path)
    code = await live(look_up(options, small), Console(file=said, width=150))
    assert code == 0, said.getvalue()
    result = json.loads(path.read_text(encoding="utf-8"))
    (struck,) = result["faults"]["weights"]
    assert struck["kind"] == "thermal"
    figures = result["figures"]
    assert (figures["stresses"], figures["alerts"], figures["false_alarms"]) == (1.0, 1.0, 0.0)
    assert figures["thermal_time_constant_s"] == 1.5
    assert figures["slo_ms"] > 0
    (first, *_) = result["alerts"]["weights"]
    assert [first["cell"]] == struck["cells"]
    assert struck["at_s"] < first["at_s"] < struck["repaired_s"]
