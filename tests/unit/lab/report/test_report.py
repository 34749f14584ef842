"""The report: what is found, what is missing, and both pages."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace_lab.cli import app
from headrace_lab.report.nothing import sentences
from headrace_lab.report.page import page
from headrace_lab.report.published import REFUSALS_AND_FAULTS, SPEEDS_AND_SIGNALS
from headrace_lab.report.results import Result, load, newest, read
from headrace_lab.report.rows import rows
from headrace_lab.report.run import readme, write

ENVIRONMENT = {
    "command": "headrace-lab live capability --json x.json",
    "cores": 2,
    "versions": {"python": "3.11.7", "headrace-lab": "0.1.0"},
    "date": "2026-01-02T00:00:00+00:00",
}


def result(scenario: str, mode: str, figures: dict[str, float | None], **more: Any) -> Result:
    data = {"scenario": scenario, "mode": mode, "seed": 1, "figures": figures, "environment": ENVIRONMENT}
    found = read(Path("x.json"), {**data, **more})
    assert found is not None
    return found


CAPABILITY = result(
    "capability",
    "live",
    {"leak.rr": 0.321, "leak.weights": 0.0, "leak.v3": None},
    load="mixed_30_long",
    rps=10.0,
)


def interval(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def line(load: str, vs_rr: float, apart: bool = True) -> dict[str, Any]:
    return {
        "load": load,
        "arm": "weights",
        "tier": "middle",
        "vs_rr": interval(vs_rr),
        "vs_plain": interval(vs_rr),
        "apart_from_rr": apart,
    }


MATRIX = result(
    "matrix/homogeneous",
    "sim",
    {
        "ratio_vs_rr.a.middle.weights": 0.9,
        "ratio_vs_rr.b.middle.weights": 1.2,
        "ratio_vs_rr.b.tight.weights": 9.9,
        "p99_ms.baseline_mixed.rr": 1000.0,
        "p99_ms.baseline_mixed.weights": 800.0,
    },
    lines=[line("a", 0.9), line("b", 1.2)],
    tails=[{"load": "a", "arm": "weights", "vs_plain": interval(1.1)}],
)


def test_a_measured_figure_stands_beside_the_published_one() -> None:
    (row,) = [each for each in rows([CAPABILITY], "out") if each.what.startswith("long prompts leaked")]
    assert (row.theirs, row.found) == ("0.43 %", {"rr": "32.10 %", "weights": "0.00 %"})
    assert row.mode == "live, mixed_30_long, 10 RPS"
    assert row.command == ENVIRONMENT["command"]


def test_what_was_not_measured_is_missing_with_its_command_and_never_made_up() -> None:
    found = rows([], "some/dir")
    assert all(row.missing and not row.found for row in found)
    assert all("some/dir" in row.command for row in found)
    assert len(found) >= len(REFUSALS_AND_FAULTS) + len(SPEEDS_AND_SIGNALS)


def test_the_commands_for_what_is_missing_are_ones_that_there_are() -> None:
    runner = CliRunner()
    for row in rows([], "out"):
        words = row.command.removeprefix("sudo ").split()
        if words[0] == "make":
            continue
        assert words[0] == "headrace-lab"
        shown = runner.invoke(app, [words[1], "--help"]).output
        for option in [word for word in words if word.startswith("--")]:
            assert option in re.sub(r"\x1b\[[0-9;]*m", "", shown), row.command


def test_live_and_simulated_results_both_stand() -> None:
    sim = result("capability", "sim", {"leak.rr": 0.33})
    found = [each for each in rows([CAPABILITY, sim], "out") if each.what.startswith("long prompts leaked")]
    assert [each.mode.split(",")[0] for each in found] == ["live", "sim"]


def test_the_newest_result_that_can_be_trusted_counts() -> None:
    def at(date: str, leak: float, **more: Any) -> Result:
        environment = {**ENVIRONMENT, "date": date}
        return result("capability", "live", {"leak.rr": leak}, **more | {"environment": environment})

    older, newer = at("2026-01-01", 0.1), at("2026-01-03", 0.2)
    broken = at("2026-01-04", 0.3, worked=False)
    assert newest([newer, older, broken], "capability", "live") is newer
    quick = at("2026-01-06", 0.5, quick=True)
    assert newest([newer, quick], "capability", "live") is newer
    assert newest([quick], "capability", "live") is quick
    other = at("2026-01-05", 0.4, variant="all_long")
    assert newest([newer, other], "capability", "live") is newer


def test_a_matrix_gives_its_range_over_the_loads_of_the_middle_tier() -> None:
    found = {row.what: row for row in rows([MATRIX], "out")}
    row = found["sustainable RPS against round-robin, middle SLO tier, homogeneous"]
    assert row.found == {"weights": "0.90-1.20x, median 1.05x"}
    quick = result("matrix/homogeneous", "sim", MATRIX.figures | {}, quick=True)
    (hasty,) = [each for each in rows([quick], "out") if each.what == row.what]
    assert (row.mode, hasty.mode) == ("sim", "sim, quick")
    below = found["P99 below saturation against round-robin, equal cells, baseline_mixed"]
    assert below.found == {"weights": "-20.0 %"}


def test_where_weights_gain_nothing_is_said_from_the_results() -> None:
    said = sentences([MATRIX])
    assert any("1 of 2 loads and tiers" in each and "a (middle) 0.90x" in each for each in said)
    assert any("P99 TTFT is above" in each and "a 1.10x" in each for each in said)
    assert not any("b (middle)" in each for each in said)
    unsure = result("matrix/perturbed", "sim", {}, lines=[line("c", 1.3, apart=False)])
    assert any("c (middle) 1.30x" in each for each in sentences([unsure]))
    single = line("c", 1.3, apart=False) | {"vs_rr": {"value": 1.3, "low": None, "high": None}}
    assert sentences([result("matrix/perturbed", "sim", {}, lines=[single])]) == []
    jitter = result("jitter", "sim", {"network_gain.clean": 0.001, "network_gain.spread": 0.3})
    assert sentences([jitter]) == ["network signals (sim) gain nothing in P95 TTFT under: clean +0.1 %."]
    full = result("saturation", "live", {"ttft_p99_ms.rr": 9000.0, "ttft_p99_ms.weights": 9100.0})
    assert "as much as round-robin's" in sentences([full])[0]
    lead = result(
        "lead-time", "sim", {"lead_s_mean": 15.0, "lead_s_mean.pcie": 0.1, "lead_s_mean.thermal.5s": 0.2}
    )
    assert sentences([lead]) == ["early warning: no lead against pcie stress (0.1 s)."]


def directory(tmp_path: Path) -> Path:
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "capability.json").write_text(json.dumps(CAPABILITY.data), encoding="utf-8")
    (tmp_path / "matrix.homogeneous.json").write_text(json.dumps(MATRIX.data), encoding="utf-8")
    (tmp_path / "other.json").write_text('["no result"]', encoding="utf-8")
    (tmp_path / "cut.json").write_text('{"scenario": ', encoding="utf-8")
    return tmp_path


def test_results_are_found_and_other_files_passed_over(tmp_path: Path) -> None:
    found, problems = load([directory(tmp_path)])
    assert sorted(each.scenario for each in found) == ["capability", "matrix/homogeneous"]
    assert problems == ["cut.json: JSONDecodeError"]


class Page(HTMLParser):
    """Checks that elements close in order, and gathers what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "path", "rect", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("path", "rect", "polyline"):
            return
        assert self.open.pop() == tag


def test_both_pages_are_written_and_the_html_needs_nothing_else(tmp_path: Path) -> None:
    made, _ = write([directory(tmp_path)], tmp_path / "pages")
    html, markdown = (path.read_text(encoding="utf-8") for path in made)
    parser = Page()
    parser.feed(html)
    assert (parser.open, parser.fetched) == ([], [])
    assert "<svg" in html
    for text in (
        "32.10 %",
        "Where weights gain nothing",
        "What is missing",
        ENVIRONMENT["command"],
        "cut.json",
    ):
        assert str(text) in html
        assert str(text) in markdown
    assert "headrace-lab 0.1.0" in markdown


@pytest.mark.parametrize("bad", ["<script>alert(1)</script>", "a | b"])
def test_what_a_file_says_cannot_break_a_page(tmp_path: Path, bad: str) -> None:
    data = {**CAPABILITY.data, "environment": {**ENVIRONMENT, "command": bad}}
    (tmp_path / "x.json").write_text(json.dumps(data), encoding="utf-8")
    made, _ = write([tmp_path], tmp_path)
    html, markdown = (path.read_text(encoding="utf-8") for path in made)
    assert "<script" not in html
    assert "a | b" not in markdown


def test_the_short_table_holds_only_what_was_measured(tmp_path: Path) -> None:
    shown = readme([directory(tmp_path)])
    assert "| long prompts leaked to a cell that must refuse them | 0.43 % | 32.10 % | 0.00 % |" in shown
    assert "missing" not in shown
    assert "SIGKILL" not in shown


def test_the_command_writes_and_says_where(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["report", str(directory(tmp_path))])
    assert ran.exit_code == 0, ran.output
    assert "2 results" in ran.output
    assert (tmp_path / "report.html").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert CliRunner().invoke(app, ["report", str(empty)]).exit_code == 1
    short = CliRunner().invoke(app, ["report", str(tmp_path), "--readme"])
    assert short.output.startswith("| what |")


def test_every_result_has_its_figures_on_the_page() -> None:
    titles = [section.title for section in page([CAPABILITY, MATRIX], [], "out")]
    assert any("capability mixed_30_long (live" in title for title in titles)
    assert any("matrix/homogeneous (sim" in title for title in titles)
