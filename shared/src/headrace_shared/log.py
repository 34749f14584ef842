"""Structured logs: events with key-values, few per unit of work."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from headrace_shared.config import Settings

Format = Literal["auto", "console", "json"]
Level = Literal["debug", "info", "warning", "error"]


class LogSettings(Settings):
    """Level and form of a program's log on stderr; `auto` is for people on a terminal, else JSON."""

    level: Level = "info"
    format: Format = "auto"


def configure(level: Level = "info", fmt: Format = "auto", stream: TextIO | None = None) -> None:
    """Set up logging for a program, once, at its start.

    `auto` writes for people on a terminal and JSON lines elsewhere. Logs go to stderr, so that
    stdout stays free for what a command prints.
    """
    out = stream if stream is not None else sys.stderr
    people = fmt == "console" or (fmt == "auto" and out.isatty())
    renderer: Processor = structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )


def get(component: str) -> FilteringBoundLogger:
    """The logger of one component; its name stands in every line it writes."""
    return cast(FilteringBoundLogger, structlog.get_logger(component=component))
