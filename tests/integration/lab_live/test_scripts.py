"""What the scripts do to a fleet, and what they note, against a fleet that only remembers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from headrace_lab.demo.observe import CellView, Host, Sample
from headrace_lab.live import scripts
from headrace_lab.live.ask import Ask, Options, look_up
from headrace_lab.live.layout import Layout, lay_out
from headrace_lab.live.session import Session
from headrace_lab.live.timeline import Timeline
from headrace_lab.scenarios import FaultTimes, packaged
from headrace_lab.scenarios.settings import Arm
from headrace_lab.scenarios.timelines import StressPoint
from headrace_shared.clock import Clock, SystemClock

TIMES = FaultTimes(first_s=0.05, every_s=0.6, count=2, window_s=0.5, least=2)


@dataclass
class Remembered:
    """A fleet in which a struck cell leaves Envoy's list at once and is back after its repair."""

    layout: Layout
    arm: Arm
    clock: Clock = field(default_factory=SystemClock)
    done: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    broken: bool = False
    lets_go: bool = True

    @property
    def observer(self) -> Remembered:
        return self

    async def sample(self) -> Sample:
        fallback = {name for name in self.done if name.startswith("kill exporter")}
        return Sample(
            self.clock.now(),
            {
                cell.id: CellView(
                    site.name,
                    "vllm",
                    "TERMINATED" if f"drain {cell.id}" in self.done else "READY",
                    "",
                    0.5,
                    1,
                    0.0,
                    0.0,
                    {},
                    "dcgm_fallback" if f"kill exporter {site.node}" in fallback else "",
                )
                for site in self.layout.fleet.sites
                for cell in site.cells
            },
        )

    def _strike(self, names: Iterable[str]) -> None:
        if self.lets_go:
            self.gone |= {name.removeprefix("cell ") for name in names if name.startswith("cell ")}

    def kill(self, name: str) -> None:
        self.done.append(f"kill {name}")
        self._strike([name])

    async def restart(self, name: str, *, loading_s: float | None = None, wait: bool = True) -> None:
        self.done.append(f"restart {name}")
        self.gone.discard(name.removeprefix("cell "))

    def freeze(self, names: Iterable[str]) -> None:
        wanted = list(names)
        self.done.append(f"freeze {len(wanted)}")
        self._strike(wanted)

    def thaw(self) -> None:
        self.done.append("thaw")

    async def set_fault(self, cell: str, fault: str) -> None:
        self.done.append(f"{fault} {cell}")
        if fault == "hang":
            self._strike([f"cell {cell}"])
        else:
            self.gone.discard(cell)

    async def stress(self, cell: str, point: StressPoint) -> None:
        self.done.append(f"{'stress' if point != StressPoint(at_s=point.at_s) else 'relief'} {cell}")

    async def post(self, url: str, body: dict[str, object], wanted: int) -> None:
        cell, act = url.rsplit("/", 2)[1:]
        self.done.append(f"{act} {cell}")

    async def hosts(self) -> dict[str, Host]:
        cells = [cell.id for cell in self.layout.fleet.cells if cell.id not in self.gone]
        return {cell: Host(0, True, 1) for cell in cells}

    async def whole(self, within_s: float) -> bool:
        return not self.broken

    def program(self, name: str) -> Remembered:
        return self

    async def ended(self) -> int:
        return -9

    async def stop(self) -> None:
        self.done.append("stop")

    def said(self, text: str) -> None:
        self.texts.append(text)


def ask(name: str, kind: str = "", *, repair_s: float = 0.2, seconds: float = 60.0) -> Ask:
    """A scenario in quick motion; it ends with its last fault, and has time for that on a busy machine."""
    catalogue = packaged()
    scenario = catalogue.scenario(name).model_copy(update={"faults": TIMES})
    kinds = {
        k: f.model_copy(update={"repair_s": repair_s, "every_s": 0.0}) for k, f in catalogue.faults.items()
    }
    quick = catalogue.model_copy(
        update={"scenarios": {**catalogue.scenarios, name: scenario}, "faults": kinds}
    )
    return look_up(Options(name, kind=kind, arms=("weights",), seconds=seconds), quick)


def fleet(arm: str = "weights", *, node_per_cell: bool = False) -> Remembered:
    layout = lay_out(packaged().fleet("homogeneous"), node_per_cell=node_per_cell)
    return Remembered(layout, packaged().arm(arm))


async def play(name: str, fake: Remembered, wanted: Ask) -> list[Any]:
    line = Timeline(fake.clock.now(), fake.clock)
    return await scripts.script_of(name)(cast(Session, fake), wanted, line)


@pytest.mark.parametrize(
    ("kind", "act", "mended"),
    [
        ("kill", "kill cell", "restart cell"),
        ("hang", "hang", "clear"),
        ("node", "freeze 5", "thaw"),
        ("site", "freeze 5", "thaw"),
        ("loading", "kill cell", "restart cell"),
    ],
)
async def test_each_fault_is_played_seen_and_mended(kind: str, act: str, mended: str) -> None:
    fake = fleet()
    seen = await play("failover", fake, ask("failover", kind))
    assert len(seen) == 2
    assert sum(done.startswith(act) for done in fake.done) == 2
    assert sum(done.startswith(mended) for done in fake.done) >= 2
    assert seen[0].cells != seen[1].cells
    for fault in seen:
        assert fault.detect_ms is not None
        assert 0 <= fault.detect_ms < 5000
        assert fault.repaired_s > fault.at_s


async def test_a_plain_envoy_that_keeps_the_endpoint_has_no_detection() -> None:
    fake = fleet("rr")
    fake.lets_go = False
    seen = await play("failover", fake, ask("failover", "kill"))
    assert [fault.gone_s for fault in seen] == [None, None]
    assert any("never let go" in text for text in fake.texts)


async def test_nobody_is_struck_while_the_fleet_is_not_whole() -> None:
    """A fault on top of another would be neither's figure."""
    fake = fleet()
    fake.broken = True
    assert await play("failover", fake, ask("failover", "kill")) == []
    assert fake.done == []


async def test_a_fault_whose_window_does_not_fit_is_left_out() -> None:
    assert await play("failover", fleet(), ask("failover", "kill", seconds=0.4)) == []


async def test_each_exporter_is_killed_noticed_and_restarted() -> None:
    fake = fleet(node_per_cell=True)
    seen = await play("dcgm-loss", fake, ask("dcgm-loss"))
    assert [fault.cells for fault in seen] == [("east-1",), ("east-2",)]
    assert all(fault.notice_ms is not None for fault in seen)
    assert fake.done == [f"{act} exporter east-{i}-node" for i in (1, 2) for act in ("kill", "restart")]


async def test_each_cell_is_drained_before_it_is_stopped() -> None:
    fake = fleet()
    seen = await play("rolling-upgrade", fake, ask("rolling-upgrade"))
    assert len(seen) == 2
    first = fake.done[:4]
    assert first == ["drain east-1", "stop", "restart cell east-1", "undrain east-1"]
    assert seen[0].noticed_s is not None


async def test_a_load_too_short_for_the_loss_of_the_controller_strikes_nothing() -> None:
    fake = fleet()
    assert await play("controller-loss", fake, ask("controller-loss", seconds=0.7)) == []
    assert fake.done == []
    assert any("too short" in text for text in fake.texts)


async def test_scenarios_without_faults_have_nothing_to_play() -> None:
    assert await play("burst", fleet(), look_up(Options("burst"), packaged())) == []


async def test_each_cell_is_put_under_each_stress_and_relieved() -> None:
    catalogue = packaged()
    scenario = catalogue.scenario("lead-time")
    assert scenario.lead is not None
    live = scenario.lead.live.model_copy(update={"first_s": 0.01, "rest_s": 0.01, "time_constant_s": 0.002})
    lead = scenario.lead.model_copy(update={"live": live})
    quick = catalogue.model_copy(
        update={"scenarios": {**catalogue.scenarios, "lead-time": scenario.model_copy(update={"lead": lead})}}
    )
    fake = fleet()
    seen = await play("lead-time", fake, look_up(Options("lead-time", seconds=60.0), quick))
    cells = [cell.id for cell in fake.layout.fleet.cells]
    assert [(each.kind, each.cells) for each in seen] == [(s, (c,)) for s in lead.stresses for c in cells]
    assert all(each.repaired_s is not None and each.repaired_s > each.at_s for each in seen)
    for cell in cells:
        acts = [done.split()[0] for done in fake.done if done.endswith(f" {cell}")]
        assert acts == ["stress", "relief", "stress", "stress", "stress", "stress", "relief"]
