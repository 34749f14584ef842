"""A changed settings file: taken up whole while the controller runs, or refused whole with the reason."""

from __future__ import annotations

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from headrace_controller.control import reload as module
from headrace_controller.control.reload import LIVE, NeedsRestartError, Reloader, check_live
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config
from headrace_shared.config import ConfigError, Problem
from tests.unit.controller.control.region import SETTINGS, Region


def settings(more: str = "") -> ControllerSettings:
    return config.parse(
        SETTINGS.replace("lifecycle: {barrier_s: 0, ramp_s: 0}\n", "") + more, ControllerSettings
    )


@pytest.mark.parametrize(
    ("more", "changed"),
    [
        ("", []),
        ("pressure: {scorer: v2}", ["pressure.scorer"]),
        ("projection: {name: equalise, deadband: 0.2}", ["projection.name", "projection.deadband"]),
        ("lifecycle: {ttl_s: 2}", ["lifecycle.ttl_s"]),
        ("log: {level: debug}", ["log.level"]),
        ("admin: {open_metrics: true}", ["admin.open_metrics"]),
        ("recording: {segment_s: 60}", ["recording.segment_s"]),
    ],
)
def test_what_can_change_while_it_runs(more: str, changed: list[str]) -> None:
    assert check_live(settings(), settings(more)) == changed


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("listen: {xds: '127.0.0.1:1'}", "listen.xds"),
        ("state_dir: /x", "state_dir"),
        ("baseline: rr", "baseline"),
        ("envoy: {retries: 1}", "envoy.retries"),
        ("cadence: {tick_s: 0.1}", "cadence.tick_s"),
        ("admin: {account_acts: 500}", "admin.account_acts"),
        ("recording: {enabled: false}", "recording.enabled"),
    ],
)
def test_what_needs_a_restart_refuses_the_whole_file(more: str, named: str) -> None:
    with pytest.raises(NeedsRestartError, match="moves no traffic") as refused:
        check_live(settings(), settings(f"pressure: {{scorer: v2}}\n{more}"))
    assert str(refused.value).startswith(f"{named}: ")


def test_gateways_need_a_restart() -> None:
    more = settings().model_copy(update={"gateways": settings().gateways[:1]})
    with pytest.raises(NeedsRestartError, match=r"^gateways: "):
        check_live(settings(), more)


def test_every_part_of_the_settings_is_either_live_or_not() -> None:
    assert set(ControllerSettings.model_fields) > LIVE


class File:
    """A settings file that the test owns."""

    def __init__(self) -> None:
        self.now: ControllerSettings | Exception = settings()
        self.applied: list[ControllerSettings] = []
        self.blocked = threading.Event()
        self.blocked.set()

    def load(self) -> ControllerSettings:
        self.blocked.wait(20)
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    def reloader(self) -> Reloader:
        return Reloader(settings(), self.load, self.applied.append, asyncio.Event())


async def test_settings_are_applied_each_time_because_the_files_they_name_may_have_changed() -> None:
    file = File()
    reloader = file.reloader()
    assert await reloader.reload() == "unchanged"
    file.now = settings("projection: {deadband: 0.2}")
    assert await reloader.reload() == "applied"
    assert await reloader.reload() == "unchanged", "compared with what is in force now"
    assert file.applied == [settings(), file.now, file.now]


@pytest.mark.parametrize(
    "wrong", [ConfigError("x", [Problem(3, "a", "bad")]), settings("baseline: lr")], ids=["file", "restart"]
)
async def test_a_file_that_is_refused_changes_nothing(wrong: ControllerSettings | Exception) -> None:
    file = File()
    reloader = file.reloader()
    file.now = wrong
    with capture_logs() as logs:
        assert await reloader.reload() == "refused"
    assert (file.applied, reloader.settings) == ([], settings())
    (line,) = logs
    assert line["log_level"] == "error"
    assert line["why"]


async def test_a_fault_of_our_own_ends_nothing() -> None:
    file = File()

    def broken(_: ControllerSettings) -> None:
        raise RuntimeError("planted")

    reloader = Reloader(settings(), file.load, broken, asyncio.Event())
    file.now = settings("projection: {deadband: 0.2}")
    assert await reloader.reload() == "failed"
    assert reloader.settings == settings()


async def test_a_disk_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOAD_TIMEOUT_S", 0.05)
    file = File()
    file.blocked.clear()
    assert await file.reloader().reload() == "refused"
    file.blocked.set()


async def test_each_time_that_it_is_asked_it_reloads_and_says_how_it_went() -> None:
    file, told, asked = File(), [], asyncio.Event()
    reloader = Reloader(settings(), file.load, file.applied.append, asked, told.append)
    running = asyncio.create_task(reloader.run(), name="reload")
    for number, more in enumerate(("log: {level: debug}", "log: {level: debug}", "baseline: rr"), 1):
        file.now = settings(more)
        asked.set()
        async with asyncio.timeout(20):
            while len(told) < number:  # noqa: ASYNC110 (a thread's doing)
                await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert told == ["applied", "unchanged", "refused"]


def busy(region: Region) -> None:
    """c2 works harder than c1, long enough for the weights to say so."""
    for step in range(200):
        if step % 10 == 0:
            for cell, queue in (("c1", 1), ("c2", 15)):
                signals = pb.Signals(queue_depth=queue, kv_fill=queue / 20, compute_active=0.5, gpu_util=0.5)
                region.beat(cell, signals=signals)
        region.tick(0.05)


def weights(region: Region) -> dict[str, int]:
    return {cell.id: cell.weights["gw-1"] for cell in region.views.fleet().cells}


def test_other_parameters_are_in_force_at_once_and_weights_go_on_from_where_they_were() -> None:
    region = Region()
    region.connect("c1", "c2")
    busy(region)
    before = weights(region)
    assert before["c1"] == 100
    assert before["c2"] < 90
    region.loop.use(region.settings.model_copy(update={"log": region.settings.log}))
    region.tick()
    assert weights(region) == before, "nothing that weights depend on has changed"
    sharper = region.settings.projection.model_copy(update={"sharpness": 8.0})
    region.loop.use(region.settings.model_copy(update={"projection": sharper}))
    region.tick()
    assert weights(region)["c2"] >= before["c2"] / region.settings.projection.max_change - 1
    busy(region)
    assert weights(region)["c2"] < before["c2"]


def test_other_times_of_the_lifecycle_are_in_force_at_once() -> None:
    region = Region()
    region.connect("c1")
    region.tick()
    region.beat("c1")
    region.tick()
    times = region.settings.lifecycle.model_copy(update={"ttl_s": 30.0, "retention_s": 7.0})
    region.loop.use(region.settings.model_copy(update={"lifecycle": times}))
    region.tick(20)
    assert not region.loop.fleet.telemetry_lost[0]
    assert region.loop.fleet.retention_s == 7.0
