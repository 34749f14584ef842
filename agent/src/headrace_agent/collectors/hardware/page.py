"""A DCGM exporter's page, from bytes to the samples of its wanted fields."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace_agent.collectors.exposition import (
    MAX_LINE_CHARS,
    PageError,
    Sample,
    decode_page,
    line_name,
    read_sample,
)

MAX_SAMPLES = 20_000


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted samples. `matching` counts the lines with the prefix, wanted or not; `malformed`
    counts wanted lines that could not be read and were left out."""

    samples: tuple[Sample, ...]
    matching: int
    malformed: int


def read_page(raw: bytes, prefix: str, wanted: Collection[str]) -> Page:
    """The samples of the families in `wanted`, all of which start with `prefix`.

    An empty page is a Page without samples. Raises PageError where the bytes are too many, not
    UTF-8, HTML, or cut short.
    """
    samples: list[Sample] = []
    matching = malformed = 0
    for line in _text(raw).split("\n"):
        line = line.strip()
        if not line.startswith(prefix):
            continue
        matching += 1
        if line_name(line) not in wanted:
            continue
        sample = _sample(line)
        if sample is None:
            malformed += 1
        else:
            samples.append(sample)
        if len(samples) > MAX_SAMPLES:
            raise PageError(f"the page has more than {MAX_SAMPLES} samples; is this an exporter of one host?")
    return Page(tuple(samples), matching, malformed)


def _text(raw: bytes) -> str:
    text = decode_page(raw)
    # The format ends each line, the last one too, so a missing end means missing figures.
    if text.strip() and not text.endswith("\n"):
        raise PageError("the page is cut short: its last line has no end")
    return text


def _sample(line: str) -> Sample | None:
    """Read one line; None where it is malformed."""
    if len(line) > MAX_LINE_CHARS:
        return None
    try:
        return read_sample(line)
    except ValueError:
        return None
