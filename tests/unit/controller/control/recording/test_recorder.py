"""Recording a control loop, and replaying it: the same parameters give the same weights again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_controller.control.intents.records import Actor
from headrace_controller.control.recording import recorder as module
from headrace_controller.control.recording.entries import Kind
from headrace_controller.control.recording.files import DIRECTORY, Ring, find_files, read_file
from headrace_controller.control.recording.recorder import RETRY_S
from headrace_controller.control.recording.replay import SETTLE_S, replay_files
from headrace_controller.control.recording.report import Report
from headrace_pb.v1 import telemetry_pb2 as pb
from tests.support.clock import FakeClock
from tests.unit.controller.control.region import Region


class Load:
    """Three cells under a load that the test owns: `queue` by cell."""

    def __init__(self, place: Path, more: str = "", clock: FakeClock | None = None) -> None:
        self.region = Region(f"state_dir: {place}\n{more}", clock)
        self.queue = {"c1": 1.0, "c2": 1.0, "c3": 1.0}
        self.region.connect("c1", "c2", "c3")

    def run(self, seconds: float) -> None:
        """Beats twice a second, ticks twenty times."""
        for step in range(round(seconds * 20)):
            if step % 10 == 0:
                self._beat()
            self.region.tick(0.05)

    def close(self) -> None:
        self.region.close()

    def _beat(self) -> None:
        now = self.region.clock.now()
        cells = [
            pb.CellBeat(
                cell_id=cell,
                engine_state=pb.ENGINE_STATE_SERVING,
                serving_ms=600_000,
                signals=pb.Signals(queue_depth=queue, kv_fill=queue / 40, compute_active=0.5, gpu_util=0.5),
            )
            for cell, queue in self.queue.items()
        ]
        paths = [pb.PathBeat(gateway=name, rtt_ms=5.0, jitter_ms=0.5, age_ms=0) for name in ("gw-1", "gw-2")]
        self.region.loop.telemetry("n1", pb.Telemetry(cells=cells, paths=paths), now)
        self.region.loop.alive("n1", now)


def entries(place: Path) -> list[Any]:
    return [entry for path in find_files(place) for entry in read_file(path)]


def replayed(place: Path, **change: Any) -> Report:
    return replay_files(find_files(place), **change)


@pytest.fixture
def eventful(tmp_path: Path) -> Path:
    """Twenty seconds in which c3 gets busy, c2 is drained, and an operator sets a weight."""
    load = Load(tmp_path)
    load.run(8)
    load.queue["c3"] = 20.0
    load.run(4)
    load.region.operators.drain("c2", "repair", 600, Actor("anna"))
    load.run(3)
    load.region.operators.override("c1", 42, "", Actor("anna"))
    load.run(5)
    load.close()
    return tmp_path


def test_a_file_begins_with_all_that_is_known_and_goes_on_with_what_happens(eventful: Path) -> None:
    kinds = [entry.kind for entry in entries(eventful)]
    assert kinds[:4] == [Kind.OPEN, Kind.INTENTS, Kind.READY, Kind.HELLO], "from the very beginning"
    counted = Counter(kinds)
    assert counted[Kind.CELL] == 0
    assert 36 <= counted[Kind.BEAT] <= 41
    assert counted[Kind.TICK] >= 60
    assert counted[Kind.INTENTS] == 2
    assert counted[Kind.LIFE] >= 1


def test_the_same_parameters_give_the_recorded_weights_again(eventful: Path) -> None:
    report = replayed(eventful)
    assert report.fidelity.difference == 0.0, report.fidelity
    assert report.worst.difference == 0.0
    assert report.pushes_before == report.pushes_after == report.pushes_recorded > 3
    assert 15 <= report.seconds <= 21
    rows = {row.cell: row for row in report.rows}
    assert rows["c1"].weights_before == rows["c1"].weights_recorded == (42, 42)
    assert rows["c3"].weights_recorded == rows["c3"].weights_before


def test_other_parameters_show_what_would_have_changed(eventful: Path) -> None:
    report = replayed(eventful, projection="equalise")
    assert report.worst.difference > 0.05
    assert report.worst.cell
    assert report.worst.at_s >= SETTLE_S
    rows = {row.cell: row for row in report.rows}
    assert rows["c3"].weights_before != rows["c3"].weights_after
    assert rows["c1"].weights_after == (42, 42), "what an operator set, no parameter changes"
    assert all(0.0 < (row.share_after or 0.0) < 1.0 for row in report.rows)


def test_a_scorer_that_leaves_signals_out_is_another_one(eventful: Path) -> None:
    assert replayed(eventful, scorer="v2").worst.difference > 0.0


def test_what_gateways_reported_counts_in_a_replay(tmp_path: Path) -> None:
    """Errors that only gateways see must cost a replayed cell its weight too."""
    load = Load(tmp_path)
    load.run(8)
    fleet, row = load.region.loop.fleet, load.region.loop.fleet.row("c1")
    for _ in range(6):
        fleet.gateway_evidence[:3, 0] += 50
        fleet.gateway_evidence[row, 3] += 50
        fleet.gateway_told_at[:3] = load.region.clock.now()
        fleet.gateway_version += 1
        load.run(1)
    load.close()
    report = replayed(tmp_path)
    (found,) = [each for each in report.rows if each.cell == "c1"]
    assert max(found.weights_recorded) < 50
    assert found.weights_before == found.weights_recorded
    assert report.fidelity.difference == 0.0


def test_a_drained_cell_has_a_share_only_for_as_long_as_it_had_one(tmp_path: Path) -> None:
    load = Load(tmp_path)
    load.run(8)
    load.region.operators.drain("c2", "", 600, Actor("anna"))
    load.run(8)
    load.close()
    rows = {row.cell: row for row in replayed(tmp_path).rows}
    assert rows["c2"].share_before == pytest.approx(1 / 3, abs=0.02)
    assert 1 / 3 < (rows["c1"].share_before or 0) < 1 / 2


def test_files_of_one_run_are_one_recording(tmp_path: Path) -> None:
    load = Load(tmp_path, "recording: {segment_s: 5}\n")
    load.run(22)
    load.close()
    files = find_files(tmp_path)
    assert len(files) >= 4
    kinds = [entry.kind for entry in read_file(files[1])]
    assert kinds[:2] == [Kind.OPEN, Kind.INTENTS]
    assert kinds.index(Kind.HELLO) < kinds.index(Kind.CELL) < kinds.index(Kind.PUSH) < kinds.index(Kind.READY)
    assert kinds.count(Kind.CELL) == 3
    whole = replay_files(files)
    assert whole.seconds == pytest.approx(21, abs=2)
    assert whole.fidelity.difference == 0.0, "files that follow on each other lose nothing"
    last = replay_files(files[2:])
    assert last.seconds < 14
    assert last.fidelity.difference < 0.02, "a file stands alone"


def test_two_runs_are_counted_one_after_the_other(tmp_path: Path) -> None:
    clock = FakeClock()
    for _ in range(2):
        load = Load(tmp_path, clock=clock)
        load.run(7)
        load.close()
    report = replayed(tmp_path)
    assert 11 <= report.seconds <= 14.5
    assert len(report.rows) == 3


def test_a_baseline_or_no_place_records_nothing(tmp_path: Path) -> None:
    for region in (
        Region(f"state_dir: {tmp_path}\nbaseline: rr\n"),
        Region(f"state_dir: {tmp_path}\nrecording: {{enabled: false}}\n"),
        Region(),
    ):
        assert region.desk.recorder is None
        region.close()
    assert not (tmp_path / DIRECTORY).exists()


def test_beats_are_thinned_out_where_there_are_too_many(tmp_path: Path) -> None:
    load = Load(tmp_path, "recording: {max_beats_per_s: 1}\n")
    load.run(20)
    load.close()
    assert 18 <= Counter(entry.kind for entry in entries(tmp_path))[Kind.BEAT] <= 21


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for what another thread does."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


class StuckRing(Ring):
    """A disk that hangs until the test lets it go, or that refuses."""

    goes_on = threading.Event()
    refuses = False

    def write(self, entry: Any) -> None:
        self.goes_on.wait(20)
        if type(self).refuses:
            raise OSError("no space left")
        super().write(entry)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> type[StuckRing]:
    monkeypatch.setattr(module, "Ring", StuckRing)
    StuckRing.goes_on.clear()
    StuckRing.refuses = False
    return StuckRing


def test_a_disk_that_hangs_holds_up_nothing_and_what_it_missed_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: type[StuckRing]
) -> None:
    monkeypatch.setattr(module, "QUEUE", 64)
    monkeypatch.setattr(module, "CLOSE_S", 20)
    load = Load(tmp_path)
    load.run(10)
    lost = load.region.metrics.registry.get_sample_value("headrace_recording_lost_total", {"reason": "queue"})
    assert lost is not None
    assert lost > 0
    assert load.region.loop.published is not None
    stuck.goes_on.set()
    recorder = load.region.desk.recorder
    assert recorder is not None
    wait_for(recorder._writer._queue.empty)
    load.run(10)
    load.close()
    assert replayed(tmp_path).ticks > 20, "after the gap a file begins that stands alone"


def test_a_disk_that_refuses_is_said_once_and_tried_again(tmp_path: Path, stuck: type[StuckRing]) -> None:
    stuck.goes_on.set()
    stuck.refuses = True
    load = Load(tmp_path)
    load.run(2)
    recorder = load.region.desk.recorder
    assert recorder is not None
    wait_for(lambda: bool(recorder._writer.trouble))
    assert recorder.state == "stopped: no space left"
    stuck.refuses = False
    load.region.clock.advance(RETRY_S)
    load.run(7)
    load.close()
    assert replayed(tmp_path).ticks > 20
