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


def test_a_logger_that_exists_takes_a_new_level_and_form() -> None:
    """A reload may change both, and parts of a program bind their loggers once."""
    out = io.StringIO()
    log.configure("info", "json", out)
    logger = log.get("stream").bind(controller="c")
    logger.debug("left out")
    assert out.getvalue() == ""
    log.configure("debug", "json", out)
    logger.debug("told")
    assert json.loads(out.getvalue())["event"] == "told"
    out.truncate(out.seek(0))
    log.configure("error", "console", out)
    logger.warning("left out")
    logger.error("told to people")
    assert "told to people" in out.getvalue()
    assert "left out" not in out.getvalue()
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(out.getvalue())
