"""The fleet, the settings of its programs, the choice of a victim, and what is shown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import typer
from rich.console import Console

from headrace_agent import settings as agent_settings
from headrace_controller import settings as controller_settings
from headrace_lab.demo import settings_files
from headrace_lab.demo.commands import check_places
from headrace_lab.demo.display import Panel, number, share
from headrace_lab.demo.fleet import GATEWAY, Cell, Fleet, Ports, Site
from headrace_lab.demo.kill import Kill, choose
from headrace_lab.demo.observe import Host, Observer
from headrace_lab.demo.phases import not_serving, run_directory
from headrace_lab.load.driver import Driver, Target
from tests.support.clock import FakeClock
from tests.unit.lab.demo.making import cell_json, fleet_json, sample
from tests.unit.lab.load.making import record

FLEET = Fleet(
    "m",
    (
        Site("north", (Cell("a", 8001, "GPU-1"), Cell("b", 8002, "GPU-2")), 9001, 9401),
        Site("west", (Cell("c", 8003),), 9002),
    ),
    Ports(18000, 18001, 18002, 10000, 9901),
)


def test_the_settings_files_are_what_the_programs_accept(tmp_path: Path) -> None:
    path = settings_files.write(tmp_path / "c.yaml", settings_files.controller(FLEET))
    controller = controller_settings.load(path)
    assert [gateway.id for gateway in controller.gateways] == [GATEWAY]
    assert controller.envoy.expose_upstream
    for site in FLEET.sites:
        path = settings_files.write(tmp_path / f"{site.name}.yaml", settings_files.agent(site, FLEET))
        agent = agent_settings.load(path)
        assert [cell.id for cell in agent.cells] == [cell.id for cell in site.cells]
        assert agent.controllers[0].address == controller.listen.telemetry
        assert (agent.hardware.dcgm_url is None) is (site.exporter_port == 0)


def test_the_fleet_is_found_by_id_and_by_address() -> None:
    assert FLEET.cell("c").url == "http://127.0.0.1:8003"
    assert FLEET.by_address["127.0.0.1:8002"] == "b"
    with pytest.raises(KeyError):
        FLEET.cell("x")


ADDRESSES = {"a": "h:1", "b": "h:2", "c": "h:3"}


def test_the_victim_is_the_first_busy_one_in_the_seed_s_order() -> None:
    hosts = {"h:1": Host(0, True, 1), "h:2": Host(2, True, 1), "h:3": Host(1, True, 1)}
    assert choose(["a", "b", "c"], ADDRESSES, hosts) == "b"
    assert choose(["c", "b", "a"], ADDRESSES, hosts) == "c"
    assert choose(["a"], ADDRESSES, hosts) is None
    assert choose(["a"], ADDRESSES, {}) is None


def test_detection_is_the_removal_and_out_of_use_the_first_of_both() -> None:
    kill = Kill("a", 10.0, 1, gone_at=10.5, shunned_at=10.2)
    assert kill.detect_ms == pytest.approx(500)
    assert kill.out_of_use_ms == pytest.approx(200)
    never = Kill("a", 10.0, 1, None, None)
    assert (never.detect_ms, never.out_of_use_ms) == (None, None)


def held(*addresses: str) -> dict[str, Host]:
    return {address: Host(0, True, 1) for address in addresses}


def test_serving_means_all_ready_published_and_held_by_envoy() -> None:
    from headrace_lab.demo.observe import read_sample

    all_held = held("127.0.0.1:8001", "127.0.0.1:8002", "127.0.0.1:8003")
    good = sample(0.0, a=1, b=1, c=1)
    assert not_serving(FLEET, good, all_held) == ""
    assert "does not know cell c" in not_serving(FLEET, sample(0.0, a=1, b=1), all_held)
    assert "hold a, c" in not_serving(FLEET, good, held("127.0.0.1:8002"))
    loading = fleet_json(cell_json("a"), cell_json("b", state="LOADING", cause="warm-up"), cell_json("c"))
    assert "b is LOADING (warm-up)" in not_serving(FLEET, read_sample(loading, 0.0), all_held)
    young = fleet_json(cell_json("a"), cell_json("b"), cell_json("c"), published=False)
    assert "not published" in not_serving(FLEET, read_sample(young, 0.0), all_held)


def panel(clock: FakeClock) -> Panel:
    observer = Observer.__new__(Observer)
    from headrace_lab.demo.observe import History

    observer.history, observer.trouble = History(), "the API is away"
    driver = Driver(Target("http://x", "m"), clock)
    return Panel(FLEET, observer, driver, 40.0, clock, ["5.0 s: something happened"])


def rendered(shown: Panel) -> str:
    out = io.StringIO()
    Console(file=out, width=160, force_terminal=False).print(shown.table())
    return out.getvalue()


def test_the_table_shows_cells_before_anything_is_known() -> None:
    text = rendered(panel(FakeClock()))
    assert "unknown" in text
    assert "something happened" in text
    assert "the API is away" in text


def test_the_table_shows_state_weight_share_and_ttft() -> None:
    clock = FakeClock()
    shown = panel(clock)
    shown.observer.history.add(sample(clock.now(), a=97, b=13, c=50))
    shown.driver.started_at = clock.now()
    shown.driver.records += [record(cell="a", ttft_ms=33.0)] * 3 + [record(cell="b", ttft_ms=44.0)]
    clock.advance(5.0)
    row_a, row_b = (line for line in rendered(shown).splitlines() if " a " in line or " b " in line)
    assert "READY" in row_a
    assert "97" in row_a
    assert row_a.count("75.0%") == 2
    assert "33.0" in row_a
    assert "25.0%" in row_b
    assert "4 requests over, 4 good" in shown.line()


def test_old_requests_leave_the_recent_share() -> None:
    clock = FakeClock()
    shown = panel(clock)
    shown.driver.started_at = clock.now()
    shown.driver.records += [record(cell="a", sent_s=1.0), record(cell="b", sent_s=14.0)]
    clock.advance(15.0)
    assert [r.cell for r in shown.recent()] == ["b"]


def test_figures_for_people() -> None:
    assert (number(None), number(1.25, ".1f"), share(0, 0), share(1, 4)) == ("-", "1.2", "-", "25.0%")


def test_places_that_cannot_be_written_are_refused_first(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="/proc"):
        check_places(Path("/proc/none/x.json"), None, 0)
    blocked = tmp_path / "file"
    blocked.write_text("x", encoding="utf-8")
    with pytest.raises(typer.BadParameter):
        check_places(None, blocked, 0)
    check_places(tmp_path / "new" / "x.json", tmp_path / "logs", 0)


def test_the_run_directory_stays_only_where_it_helps(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    with run_directory(console, None, "t-") as gone:
        assert gone.path.is_dir()
    assert not gone.path.exists()
    with pytest.raises(ZeroDivisionError), run_directory(console, None, "t-") as kept:
        raise ZeroDivisionError
    assert kept.path.is_dir()
    kept.path.rmdir()
    with run_directory(console, tmp_path / "mine", "t-") as chosen:
        assert chosen.path == tmp_path / "mine"
    assert chosen.path.is_dir()
