"""Logs: one JSON object a line for machines."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from headrace_shared import log


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_json_lines_name_component_level_and_time() -> None:
    out = io.StringIO()
    log.configure("info", "json", out)
    log.get("ingest").info("agent connected", node="n1")
    line = json.loads(out.getvalue())
    assert (line["component"], line["level"], line["event"], line["node"]) == (
        "ingest",
        "info",
        "agent connected",
        "n1",
    )
    assert line["timestamp"].endswith("Z")


def test_lower_levels_are_left_out() -> None:
    out = io.StringIO()
    log.configure("warning", "json", out)
    log.get("x").info("quiet")
    assert out.getvalue() == ""
