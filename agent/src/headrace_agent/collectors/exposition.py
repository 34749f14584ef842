"""The Prometheus text format, read strictly and within bounds; every metrics page comes this way.

A page is what another program wrote: it may be empty, cut short, HTML, binary or endless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

MAX_PAGE_BYTES = 8 * 1024 * 1024
# The parser walks a line character by character, and label values may be hostile.
MAX_LINE_CHARS = 8192
_MAX_CACHED_CHARS = 512


class PageError(Exception):
    """A page that holds no metrics; the text says what it is instead."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page: `name{labels} value`; the value may be NaN or infinite."""

    name: str
    labels: Mapping[str, str]
    value: float


def oversize(limit: int) -> str:
    """The words for an answer of more than `limit` bytes."""
    size = f"{limit // 1024**2} MiB" if limit >= 1024**2 else f"{limit // 1024} KiB"
    return f"the answer is larger than {size}; it was not read to its end"


def decode_page(raw: bytes) -> str:
    """The page as text. Raises PageError where the bytes are too many, not UTF-8, or HTML."""
    if len(raw) > MAX_PAGE_BYTES:
        raise PageError(oversize(MAX_PAGE_BYTES))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PageError(
            f"the page is not UTF-8 text (byte {error.start}); check that it is a metrics address"
        ) from error
    if text[:512].lstrip("\ufeff \t\r\n").startswith("<"):
        raise PageError("the page is HTML, not metrics; check the port and the path")
    return text


def line_name(line: str) -> str:
    """The metric that a line with a figure names."""
    return line.split("{", 1)[0].split(None, 1)[0]


def read_sample(line: str) -> Sample:
    """Read one line with a figure. Raises ValueError where it cannot be read.

    Names and labels stay the same from page to page and cost most of the reading, so the part
    before the value is read once and remembered.
    """
    end = line.rfind("}") + 1
    words = line[end:].split() if end else line.split()[1:]
    # Python's float takes 1_000, the format does not.
    if not 1 <= len(words) <= 2 or "_" in words[0]:
        raise ValueError(f"not a sample: {line[:80]!r}")
    try:
        if not 0 < end <= _MAX_CACHED_CHARS:
            return _parse(line)
        head = _parse_head(line[:end])
        return Sample(head.name, head.labels, float(words[0]))
    except (IndexError, KeyError, OverflowError) as error:
        raise ValueError(f"not a sample: {line[:80]!r}") from error


@lru_cache(maxsize=8192)
def _parse_head(head: str) -> Sample:
    return _parse(f"{head} 0")


def _parse(line: str) -> Sample:
    for family in text_string_to_metric_families(line):
        for sample in family.samples:
            return Sample(sample.name, MappingProxyType(dict(sample.labels)), float(sample.value))
    raise ValueError("no sample")
