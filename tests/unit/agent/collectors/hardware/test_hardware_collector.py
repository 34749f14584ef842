"""What a cell is told of its GPUs, from reads handed in on a clock that the test owns."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_agent.collectors.hardware.collector import HardwareCollector
from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.hardware.source import Read
from headrace_agent.collectors.readings import Gpu, HardwareReading, HardwareSource, Health, Status, Tally
from headrace_agent.settings import HardwareSettings
from tests.support.clock import FakeClock

REFUSED = Read(Status.FAILED, detail="connection refused")


class Bench:
    """A collector, its clock, and an exporter whose energy moves with every page."""

    def __init__(self, dcgm: bool = True, nvml: bool = True) -> None:
        self.clock = FakeClock()
        self.events: list[tuple[str, int]] = []
        url = "http://127.0.0.1:9400" if dcgm else None
        settings = HardwareSettings(dcgm_url=url, nvml="auto" if nvml else "off")
        self.collector = HardwareCollector(settings, self.clock, lambda *event: self.events.append(event))
        self.energy = 0.0

    def page(self, *gpus: GpuFigures, moves: bool = True) -> None:
        self.energy += moves
        figures = tuple(
            GpuFigures(
                each.uuid,
                each.index,
                each.instance,
                each.name,
                each.memory_mib,
                each.signals,
                each.health,
                None if each.instance else self.energy,
                each.weaker_bandwidth,
                each.origin,
                each.aliases,
            )
            for each in gpus
        )
        self.collector.take_dcgm(Read(Status.OK, figures), self.clock.now())

    def nvml(self, *gpus: GpuFigures) -> None:
        self.collector.take_nvml(Read(Status.OK, gpus), self.clock.now())

    def reading(self, *refs: str | int) -> HardwareReading:
        return self.collector.reading(refs, self.clock.now())

    def statuses(self, *refs: str | int) -> dict[str, Status]:
        return {each.name: each.status for each in self.reading(*refs).sources}


def gpu(uuid: str, index: int = 0, util: float = 0.5, **health: Any) -> GpuFigures:
    return GpuFigures(
        uuid, index, name="Test", memory_mib=100, signals={"gpu_util": util}, health=Health(**health)
    )


def test_a_cell_without_gpus_has_no_hardware() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1"))
    assert bench.reading() == HardwareReading()


def test_before_the_first_read_there_are_no_figures_and_nothing_has_failed() -> None:
    reading = Bench().reading(0)
    assert (reading.source, reading.signals, reading.health) == (HardwareSource.NONE, {}, None)
    assert [each.status for each in reading.sources] == [Status.NO_DATA, Status.NO_DATA]
    assert all(each.read_at is None for each in reading.sources)


def test_the_cells_figure_is_its_worst_gpus() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1", 0, 0.2), gpu("GPU-2", 1, 0.9), gpu("GPU-3", 2, 1.0))
    reading = bench.reading("GPU-1", 1)
    assert reading.source is HardwareSource.DCGM
    assert reading.signals == {"gpu_util": 0.9}
    assert reading.gpus == (Gpu("GPU-1", "Test", 100), Gpu("GPU-2", "Test", 100))


@pytest.mark.parametrize(
    "lost", [REFUSED, Read(Status.NO_DATA, detail="empty"), Read(Status.FAILED, detail="HTTP 500")]
)
def test_a_failed_read_puts_the_fallback_in_force_at_the_next_reading(lost: Read) -> None:
    bench = Bench()
    bench.page(gpu("GPU-1", util=0.2))
    bench.nvml(gpu("GPU-1", util=0.3))
    assert bench.reading(0).source is HardwareSource.DCGM
    bench.collector.take_dcgm(lost, bench.clock.advance(0.25))
    reading = bench.reading(0)
    assert (reading.source, reading.signals) == (HardwareSource.NVML, {"gpu_util": 0.3})
    assert reading.sources[0].detail == lost.detail


def test_without_a_fallback_there_is_no_signal_rather_than_an_old_one() -> None:
    bench = Bench(nvml=False)
    bench.page(gpu("GPU-1"))
    bench.collector.take_dcgm(REFUSED, bench.clock.advance(0.25))
    reading = bench.reading(0)
    assert (reading.source, reading.signals) == (HardwareSource.NONE, {})
    assert reading.gpus == (Gpu("GPU-1", "Test", 100),), "which GPU it is does not change"
    assert reading.sources[0].read_at == bench.clock.now() - 0.25, "the age is that of the last good read"


ABSENT = Read(Status.NO_DATA, detail="no NVML library on this host", absent=True)


def spare(bench: Bench, *refs: str | int) -> list[str]:
    return [each.name for each in bench.reading(*refs).sources if each.spare]


def test_a_missing_library_is_spare_only_while_the_exporter_gives_all() -> None:
    bench = Bench()
    bench.collector.take_nvml(ABSENT, bench.clock.now())
    bench.page(gpu("GPU-1"))
    assert spare(bench, 0) == ["nvml"]
    assert spare(bench, 0, "MIG-a1") == [], "whose UUID NVML alone tells"
    bench.collector.take_dcgm(REFUSED, bench.clock.advance(0.5))
    assert spare(bench, 0) == []
    alone = Bench(dcgm=False)
    alone.collector.take_nvml(ABSENT, alone.clock.now())
    assert spare(alone, 0) == []


def test_an_exporter_that_comes_back_takes_over_when_it_has_settled() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1"))
    bench.collector.take_dcgm(REFUSED, bench.clock.advance(0.25))
    in_force = []
    for _ in range(6):
        bench.clock.advance(0.25)
        bench.page(gpu("GPU-1"))
        bench.nvml(gpu("GPU-1"))
        in_force.append(bench.reading(0).source)
    assert in_force == [HardwareSource.NVML] * 4 + [HardwareSource.DCGM] * 2


def test_figures_that_stand_still_are_stale_and_come_back_when_they_move() -> None:
    bench = Bench(nvml=False)
    for _ in range(8):
        bench.page(gpu("GPU-1"))
        bench.clock.advance(0.25)
    for _ in range(9):
        bench.page(gpu("GPU-1"), moves=False)
        bench.clock.advance(0.25)
    assert bench.statuses(0) == {"dcgm": Status.STALE}
    assert bench.reading(0).source is HardwareSource.NONE
    assert "stand still" in bench.reading(0).sources[0].detail
    bench.page(gpu("GPU-1"))
    assert bench.statuses(0) == {"dcgm": Status.OK}


def test_an_outage_does_not_make_the_exporter_look_slow() -> None:
    bench = Bench(nvml=False)
    for _ in range(8):
        bench.page(gpu("GPU-1"))
        bench.clock.advance(0.25)
    bench.collector.take_dcgm(REFUSED, bench.clock.now())
    bench.clock.advance(60.0)
    bench.page(gpu("GPU-1"))
    for _ in range(10):
        bench.clock.advance(0.25)
        bench.page(gpu("GPU-1"), moves=False)
    assert bench.statuses(0) == {"dcgm": Status.STALE}


def test_an_exporter_that_nobody_reads_any_more_is_stale() -> None:
    bench = Bench(nvml=False)
    bench.page(gpu("GPU-1"))
    bench.clock.advance(2.5)
    assert bench.statuses(0) == {"dcgm": Status.STALE}


def test_a_gpu_that_the_page_does_not_hold_has_no_data_and_says_why() -> None:
    bench = Bench(nvml=False)
    bench.page(gpu("GPU-1"))
    reading = bench.reading("GPU-7")
    assert reading.source is HardwareSource.NONE
    assert reading.sources[0].status is Status.NO_DATA
    assert "GPU-7" in reading.sources[0].detail


def test_a_mig_instance_gets_its_own_figures_and_its_gpus_temperature() -> None:
    bench = Bench(nvml=False)
    instance = GpuFigures("GPU-1", 0, "13", signals={"compute_active": 0.9}, health=Health(temperature_c=61))
    bench.page(gpu("GPU-1", util=0.1), instance)
    reading = bench.reading("GPU-1:13")
    assert reading.signals == {"compute_active": 0.9}
    assert reading.gpus == (Gpu("GPU-1:13"),)
    assert reading.health == Health(temperature_c=61)


def test_what_one_source_lacks_of_the_health_facts_the_other_gives() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1", temperature_c=50))
    bench.nvml(gpu("GPU-1", temperature_c=99, pcie_replays=7))
    health = bench.reading(0).health
    assert health is not None
    assert (health.temperature_c, health.pcie_replays) == (50, 7)


def test_a_gpu_that_nvml_calls_lost_is_lost_whatever_the_exporter_still_shows() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1"))
    bench.nvml(GpuFigures("GPU-1", 0, health=Health(gpu_lost=True)))
    reading = bench.reading(0)
    assert reading.health is not None
    assert reading.health.gpu_lost
    assert reading.source is HardwareSource.DCGM


def test_the_weaker_bandwidth_and_a_missing_energy_counter_are_said() -> None:
    bench = Bench(nvml=False)
    weak = GpuFigures("GPU-1", 0, signals={"memory_bw_util": 0.7}, weaker_bandwidth=True)
    bench.collector.take_dcgm(Read(Status.OK, (weak,)), bench.clock.now())
    detail = bench.reading(0).sources[0].detail
    assert "copy share" in detail
    assert "TOTAL_ENERGY_CONSUMPTION" in detail


def test_a_slow_exporter_is_told_of_with_what_to_do() -> None:
    bench = Bench(nvml=False)
    for step in range(500):
        bench.page(gpu("GPU-1"), moves=step % 40 == 0)
        bench.clock.advance(0.25)
    reading = bench.reading(0)
    assert reading.source is HardwareSource.DCGM
    assert "every 10 s" in reading.sources[0].detail
    assert "DCGM_EXPORTER_INTERVAL" in reading.sources[0].detail


def test_a_new_xid_is_told_and_an_old_one_is_not() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1", last_xid=31), gpu("GPU-2", 1))
    bench.page(gpu("GPU-1", last_xid=31), gpu("GPU-2", 1, last_xid=79))
    bench.collector.take_dcgm(REFUSED, bench.clock.advance(0.25))
    bench.page(gpu("GPU-1", last_xid=31), gpu("GPU-2", 1, last_xid=79))
    assert bench.events == [("GPU-2", 79)]


def test_a_source_that_stays_down_is_logged_once_and_counted_each_time() -> None:
    bench = Bench(nvml=False)
    with capture_logs() as logs:
        bench.page(gpu("GPU-1"))
        for _ in range(5):
            bench.collector.take_dcgm(REFUSED, bench.clock.advance(0.25))
        bench.page(gpu("GPU-1"))
    assert [each["status"] for each in logs if each["event"] == "source changed"] == ["ok", "failed", "ok"]
    assert bench.collector.tallies() == {"dcgm": Tally(7, 5)}


def test_the_source_in_force_is_logged_once_per_change() -> None:
    bench = Bench(nvml=False)
    with capture_logs() as logs:
        bench.reading(0)
        bench.page(gpu("GPU-1"))
        for _ in range(3):
            bench.reading(0)
        bench.collector.take_dcgm(REFUSED, bench.clock.advance(0.25))
        for _ in range(3):
            bench.reading(0)
    told = [each["source"] for each in logs if each["event"] == "hardware figures now come from"]
    assert told == ["dcgm", "none"]


def test_sources_that_are_switched_off_are_not_mentioned() -> None:
    assert Bench(dcgm=False).statuses(0) == {"nvml": Status.NO_DATA}
    assert Bench(dcgm=False, nvml=False).statuses(0) == {}


def slices(*, named: bool = True) -> list[GpuFigures]:
    """A split GPU as NVML has it, or as an exporter has it, which knows no MIG UUIDs."""
    alias = ("MIG-a1",) if named else ()
    instance = GpuFigures("GPU-1", 0, "7", signals={"vram_util": 0.6}, aliases=alias)
    return [gpu("GPU-1", util=0.1), instance]


def test_a_mig_devices_uuid_is_found_in_every_source_once_nvml_has_named_it() -> None:
    bench = Bench()
    bench.page(*slices(named=False))
    assert "told by NVML alone" in bench.reading("MIG-a1").sources[0].detail
    bench.nvml(*slices())
    reading = bench.reading("MIG-a1")
    assert (reading.source, reading.signals) == (HardwareSource.DCGM, {"vram_util": 0.6})
    assert reading.gpus == (Gpu("GPU-1:7"),)
    bench.collector.take_dcgm(REFUSED, bench.clock.now())
    assert bench.reading("MIG-a1").source is HardwareSource.NVML


def test_an_xid_told_by_nvml_is_an_event_at_once_and_no_second_one_from_the_page() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1", last_xid=31))
    bench.nvml(gpu("GPU-1"))
    bench.collector.take_xid("GPU-1", "", 79)
    assert bench.events == [("GPU-1", 79)]
    bench.clock.advance(20.0)
    bench.page(gpu("GPU-1", last_xid=79))
    assert bench.events == [("GPU-1", 79)]


def test_an_xid_of_a_split_gpu_is_told_of_its_instances() -> None:
    bench = Bench(dcgm=False)
    bench.nvml(*slices())
    bench.collector.take_xid("GPU-1", "", 79)
    bench.collector.take_xid("GPU-1", "7", 43)
    assert bench.events == [("GPU-1", 79), ("GPU-1:7", 79), ("GPU-1:7", 43)]


def test_an_xid_of_a_gpu_without_a_name_is_nobodys() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1"))
    bench.collector.take_xid("", "", 79)
    assert bench.events == []


def test_the_beat_carries_the_xid_told_last_and_not_an_older_one_that_a_gauge_keeps() -> None:
    bench = Bench()
    bench.page(gpu("GPU-1", last_xid=79), gpu("GPU-2", 1))
    bench.nvml(gpu("GPU-1"), gpu("GPU-2", 1))

    def last_xid() -> int | None:
        health = bench.reading(0, 1).health
        return None if health is None else health.last_xid

    assert last_xid() == 79, "from before the agent began"
    bench.collector.take_xid("GPU-2", "", 31)
    assert last_xid() == 31, "at once, though the page still says 79 first"
    bench.clock.advance(0.5)
    bench.page(gpu("GPU-1", last_xid=79), gpu("GPU-2", 1, last_xid=31))
    assert last_xid() == 31


def test_an_exporter_slower_than_two_seconds_leaves_nvml_in_force_for_good() -> None:
    """Ten minutes of an exporter with its default interval: a steady state, said in words."""
    bench = Bench()
    sources = []
    for step in range(2400):
        bench.page(gpu("GPU-1"), moves=step % 120 == 0)
        bench.nvml(gpu("GPU-1"))
        sources.append(bench.reading(0).source)
        bench.clock.advance(0.25)
    changes = [at for at in range(1, len(sources)) if sources[at] is not sources[at - 1]]
    assert len(changes) == 1, "from the first page to NVML, and never back"
    assert sources[-1] is HardwareSource.NVML
    assert "every 30 s" in bench.reading(0).sources[0].detail


def test_an_exporter_that_comes_and_goes_does_not_make_the_source_flap() -> None:
    bench = Bench()
    sources = []
    for step in range(400):
        if step % 3 == 0:
            bench.collector.take_dcgm(REFUSED, bench.clock.now())
        else:
            bench.page(gpu("GPU-1"))
        bench.nvml(gpu("GPU-1"))
        sources.append(bench.reading(0).source)
        bench.clock.advance(0.25)
    assert set(sources[10:]) == {HardwareSource.NVML}


def test_nvmls_weaker_bandwidth_is_said_too() -> None:
    bench = Bench(dcgm=False)
    bench.nvml(GpuFigures("GPU-1", 0, signals={"memory_bw_util": 0.7}, weaker_bandwidth=True))
    assert "GPM" in bench.reading(0).sources[0].detail
