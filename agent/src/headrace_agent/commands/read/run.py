"""`read`, carried out: fetch, read, show."""

from __future__ import annotations

from collections.abc import Callable

from headrace_agent.collectors.exposition import PageError
from headrace_agent.commands.console import console, plain, print_json, signal_table
from headrace_agent.commands.errors import CommandError, said_clearly
from headrace_agent.commands.read import pages
from headrace_agent.commands.read.dcgm import read_dcgm
from headrace_agent.commands.read.engine import read_engine
from headrace_agent.commands.read.outcome import UNKNOWN, PageOutcome
from headrace_shared.clock import SystemClock


def show_engine(
    page: str, later: str | None, seconds: float | None, kind: str, timeout_s: float, as_json: bool
) -> None:
    """`read engine`."""
    with said_clearly():
        _check_pair(page, later, seconds)
        clock = SystemClock()
        first = _metrics(page, pages.fetch_engine_page(page, timeout_s, clock))
        second = None if later is None else _metrics(later, pages.fetch_engine_page(later, timeout_s, clock))
        _show(_read(page, lambda: read_engine(first, second, seconds, kind)), as_json)


def show_dcgm(page: str, gpu: str | None, timeout_s: float, as_json: bool) -> None:
    """`read dcgm`."""
    with said_clearly():
        raw = _metrics(page, pages.fetch_exporter_page(page, timeout_s, SystemClock()))
        _show(_read(page, lambda: read_dcgm(raw, gpu)), as_json)


def _check_pair(page: str, later: str | None, seconds: float | None) -> None:
    if seconds is not None and later is None:
        raise CommandError("--seconds: it is the time between two pages; give a LATER_PAGE too")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise CommandError("--seconds: give the time between the two pages, more than 0")
    if later == page:
        raise CommandError("LATER_PAGE: it is the same as PAGE; save the two pages apart in time, as files")


def _metrics(source: str, raw: bytes) -> bytes:
    pages.require_metrics(raw, source)
    return raw


def _read(source: str, read: Callable[[], PageOutcome]) -> PageOutcome:
    try:
        return read()
    except PageError as error:
        raise CommandError(f"{source}: {error}") from error


def _show(outcome: PageOutcome, as_json: bool) -> None:
    if as_json:
        print_json(outcome.as_json())
        return
    out = console()
    out.print(plain(f"kind: {outcome.kind or UNKNOWN}"))
    out.print(signal_table(outcome.signals, outcome.source))
    for warning in outcome.warnings:
        out.print(plain(f"warning: {warning}", "yellow"))
