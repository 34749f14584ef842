"""The report's two pages, and the command that writes them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace_lab.cli import app
from headrace_lab.report.page import page
from headrace_lab.report.results import load
from headrace_lab.report.run import readme, write
from tests.unit.lab.report.making import CAPABILITY, ENVIRONMENT, MATRIX


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
    linked = re.findall(r"!\[[^]]+\]\((report\.[a-z0-9-]+\.svg)\)", markdown)
    assert linked
    assert {path.name for path in (tmp_path / "pages").glob("*.svg")} == set(linked)


def test_a_second_report_leaves_no_picture_of_the_first(tmp_path: Path) -> None:
    write([directory(tmp_path)], tmp_path / "pages")
    (tmp_path / "matrix.homogeneous.json").unlink()
    (tmp_path / "deep" / "capability.json").unlink()
    write([tmp_path], tmp_path / "pages")
    assert list((tmp_path / "pages").glob("*.svg")) == []


def test_what_a_run_says_of_itself_stands_on_the_page(tmp_path: Path) -> None:
    data = {
        **CAPABILITY.data,
        "checks": {"requests sent on time (P99)": {"ok": False, "found": "86.7 ms late"}},
        "notes": ["a longer run is needed for a claim"],
    }
    (tmp_path / "x.json").write_text(json.dumps(data), encoding="utf-8")
    made, _ = write([tmp_path], tmp_path)
    for path in made:
        text = path.read_text(encoding="utf-8")
        assert "86.7 ms late; a longer run is needed for a claim" in text
        assert "load sent late (P99 87 ms)" in text


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
    simulated = {**CAPABILITY.data, "mode": "sim", "figures": {"leak.rr": 0.111}}
    (tmp_path / "sim.json").write_text(json.dumps(simulated), encoding="utf-8")
    assert readme([tmp_path]) == shown, "what was measured live is not simulated beside it"


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


def test_arms_beside_each_other_are_drawn(tmp_path: Path) -> None:
    data = {
        **CAPABILITY.data,
        "scenario": "perturbed",
        "load": "azure_conv",
        "figures": {"ttft_p95_ms.rr": 900.0, "ttft_p95_ms.vllm-router": 700.0},
    }
    (tmp_path / "x.json").write_text(json.dumps(data), encoding="utf-8")
    html = write([tmp_path], tmp_path)[0][0].read_text(encoding="utf-8")
    assert "P95 TTFT of arms side by side at one rate (live)" in html
    assert "perturbed, azure_conv, 10 RPS" in html


def test_every_result_has_its_figures_on_the_page() -> None:
    titles = [section.title for section in page([CAPABILITY, MATRIX], [], "out")]
    assert any("capability mixed_30_long (live" in title for title in titles)
    assert any("matrix/homogeneous (sim" in title for title in titles)
