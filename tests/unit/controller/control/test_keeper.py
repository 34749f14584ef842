"""Keeping the fleet: only what changed, one write at a time, and a disk that hangs holds up nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_controller.control.keeper import FIGURES_S, HUNG_AFTER_S, INTERVAL_S, Keeper
from headrace_controller.control.kept_fleet import (
    FILE_NAME,
    KeptDrain,
    KeptFleet,
    KeptFleetStore,
    load_within,
)
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.unit.controller.control.region import Region


class Disk(KeptFleetStore):
    """Remembers what it was given; hangs until told, and refuses when told."""

    def __init__(self) -> None:
        super().__init__(Path("unused"), "r")
        self.saved: list[KeptFleet] = []
        self.refuses = False
        self.answers = threading.Event()
        self.answers.set()
        self.done = threading.Semaphore(0)

    def save(self, fleet: KeptFleet) -> bool:
        assert self.answers.wait(10)
        self.saved.append(fleet)
        self.done.release()
        return not self.refuses

    def load(self) -> KeptFleet | None:
        assert self.answers.wait(10)
        return KeptFleet(region="r")


@pytest.fixture
def region() -> Region:
    """One READY cell, published."""
    made = Region()
    made.connect("c1")
    made.beat("c1", signals=pb.Signals(kv_fill=0.5))
    made.tick()
    return made


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    made.answers.set()


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as lines:
        yield lines


def keep(keeper: Keeper) -> None:
    """One round, and the end of the write that it began."""
    keeper.keep()
    for thread in threading.enumerate():
        if thread.name == "keep fleet":
            thread.join(10)


def test_nothing_is_kept_before_the_first_publication(disk: Disk) -> None:
    """A young controller knows less than the file; it must not overwrite it."""
    region = Region()
    region.connect("c1")
    keeper = Keeper(disk, region.loop, "r")
    keep(keeper)
    assert (keeper.snapshot(), disk.saved) == (None, [])


def test_what_is_kept_is_what_a_restart_needs(region: Region, disk: Disk) -> None:
    keep(Keeper(disk, region.loop, "r"))
    (cell,) = disk.saved[0].cells
    assert (cell.id, cell.node, cell.site, cell.host, cell.port) == ("c1", "n1", "berlin", "127.0.0.1", 8000)
    assert (cell.ready, cell.weights) == (True, {"m": {"gw-1": 100, "gw-2": 100}})
    assert [(model.id, model.max_model_len) for model in cell.models] == [("m", 4096)]


def test_only_what_changed_is_written(region: Region, disk: Disk) -> None:
    keeper = Keeper(disk, region.loop, "r")
    for _ in range(3):
        keep(keeper)
    assert len(disk.saved) == 1
    region.loop.drain("c1", "repair", None)
    region.tick()
    keep(keeper)
    assert [each.cells[0].ready for each in disk.saved] == [True, False]


def test_figures_alone_are_written_now_and_then(region: Region, disk: Disk) -> None:
    """They move with every beat; the disk must not."""
    keeper = Keeper(disk, region.loop, "r")
    for _ in range(round(2.5 * FIGURES_S / INTERVAL_S)):
        region.beat("c1", signals=pb.Signals(kv_fill=region.clock.now() % 7 / 10, queue_depth=1.0))
        region.tick()
        keep(keeper)
    assert len(disk.saved) == 3
    scores = [each.cells[0].scores["gw-1"] for each in disk.saved]
    assert len(set(scores)) == 3
    assert disk.saved[0].cells[0].rtt_ms == {"gw-1": 5.0}


def test_a_drain_is_kept_with_its_cause_and_what_is_left_of_its_time(region: Region, disk: Disk) -> None:
    region.loop.drain("c1", "new fans", 30.0)
    region.tick(10.0)
    keep(Keeper(disk, region.loop, "r"))
    (cell,) = disk.saved[0].cells
    expected = KeptDrain(requested_by="operator", cause="new fans", remaining_s=20.0, finished=False)
    assert (cell.ready, cell.drain) == (False, expected)
    region.tick(21.0)
    keep(Keeper(disk, region.loop, "r"))
    drain = disk.saved[1].cells[0].drain
    assert drain is not None
    assert (drain.cause, drain.remaining_s, drain.finished) == ("new fans", 0.0, True)


def test_what_the_disk_refused_is_tried_again(region: Region, disk: Disk) -> None:
    keeper = Keeper(disk, region.loop, "r")
    disk.refuses = True
    keep(keeper)
    keep(keeper)
    disk.refuses = False
    keep(keeper)
    keep(keeper)
    assert len(disk.saved) == 3


def test_a_disk_that_hangs_is_waited_for_by_nobody(region: Region, disk: Disk, logs: list[Any]) -> None:
    keeper = Keeper(disk, region.loop, "r")
    disk.answers.clear()
    for _ in range(round(2 * HUNG_AFTER_S / INTERVAL_S)):
        keeper.keep()
    writers = [thread for thread in threading.enumerate() if thread.name == "keep fleet"]
    assert [thread.daemon for thread in writers] == [True], "one write at a time, and no exit waits for it"
    assert [line["event"] for line in logs] == [
        "the disk does not answer; the fleet is not kept until it does"
    ]
    disk.answers.set()
    keep(keeper)
    assert len(disk.saved) == 1


def test_a_disk_that_hangs_at_the_start_is_a_cold_start(disk: Disk, logs: list[Any]) -> None:
    disk.answers.clear()
    assert load_within(disk, 0.01) is None
    assert "starting cold" in logs[0]["event"]
    disk.answers.set()
    assert load_within(disk, 10) == KeptFleet(region="r")


def test_a_disk_that_refuses_is_said_once_until_it_takes_again(tmp_path: Path, logs: list[Any]) -> None:
    store, fleet = KeptFleetStore(tmp_path, "r"), KeptFleet(region="r")
    (tmp_path / "fleet.new").mkdir()
    assert [store.save(fleet) for _ in range(3)] == [False] * 3
    (tmp_path / "fleet.new").rmdir()
    assert [store.save(fleet) for _ in range(2)] == [True] * 2
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).mkdir()
    assert not store.save(fleet)
    assert [(line["log_level"], "cannot" in line["event"]) for line in logs] == [
        *(("warning", True), ("info", False), ("warning", True))
    ]


def test_while_nothing_has_happened_no_cell_is_looked_at(
    region: Region, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet of thousands is not walked each second for nothing."""
    keeper = Keeper(disk, region.loop, "r")
    keep(keeper)
    looks: list[object] = []
    snapshot = keeper.snapshot
    monkeypatch.setattr(keeper, "snapshot", lambda: looks.append(None) or snapshot())
    rounds = round(FIGURES_S / INTERVAL_S) - 1
    for _ in range(rounds):
        keep(keeper)
    assert not looks
    keep(keeper)
    assert len(looks) == 1, "figures are looked at now and then"
    region.loop.drain("c1", "repair", None)
    region.tick()
    keep(keeper)
    assert [each.cells[0].ready for each in disk.saved] == [True, False]


async def test_a_running_keeper_writes_all_slices_of_a_large_fleet(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_controller.control.keeper.SLICE", 2)
    monkeypatch.setattr("headrace_controller.control.keeper.INTERVAL_S", 0.0)
    region = Region()
    region.connect("c1", "c2", "c3", "c4", "c5")
    region.beat("c1")
    region.tick()
    running = asyncio.create_task(Keeper(disk, region.loop, "r").run(), name="keeper")
    async with asyncio.timeout(10):
        await asyncio.to_thread(disk.done.acquire)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [cell.id for cell in disk.saved[0].cells] == ["c1", "c2", "c3", "c4", "c5"]


def test_the_weights_of_classes_are_kept_and_read_back(disk: Disk) -> None:
    region = Region()
    for number, length in enumerate((1024, 32768)):
        facts = pb.CellFacts(
            cell_id=f"c{number}",
            address=pb.Address(host="127.0.0.1", port=8000 + number),
            models=[pb.ModelFacts(id="m", max_model_len=length)],
        )
        hello = pb.Hello(node=f"n{number}", site="s", incarnation=1, cells=[facts])
        region.loop.hello(hello, region.clock.now())
        region.beat(f"c{number}", node=f"n{number}")
    region.tick()
    keep(Keeper(disk, region.loop, "r"))
    again = KeptFleet.model_validate_json(disk.saved[0].model_dump_json())
    assert region.loop.published is not None
    told = region.loop.published.classes["m"]
    assert {each.max_model_len: each.weights for each in again.classes} == {
        length: {each.cell_id: {"gw-1": each.weight, "gw-2": each.weight} for each in of_class["gw-1"]}
        for length, of_class in zip((1024, 32768), told, strict=True)
    }
