"""A DCGM exporter's page, from bytes to the samples of its wanted fields."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from headrace_agent.collectors.exposition import PageError, Sample, SampleReader, decode_page, line_name

MAX_SAMPLES = 20_000


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted samples. `matching` counts the lines with the prefix, wanted or not; `malformed`
    counts wanted lines that could not be read and were left out."""

    samples: tuple[Sample, ...]
    matching: int
    malformed: int


class FieldReader:
    """Reads one exporter's pages: the families in `wanted`, all of which start with `prefix`."""

    def __init__(self, prefix: str, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._pattern = re.compile(rf"\n[ \t]*({re.escape(prefix)}[^\n]*)")
        self._reader = SampleReader()

    def read(self, raw: bytes) -> Page:
        """The samples of a page; an empty page is a Page without samples.

        Raises PageError where the bytes are too many, not UTF-8, HTML, or cut short, or where the
        page is made to take long.
        """
        self._reader.begin()
        samples: list[Sample] = []
        matching = malformed = 0
        for match in self._pattern.finditer("\n" + _text(raw)):
            matching += 1
            line = match[1].rstrip()
            if line_name(line) not in self._wanted:
                continue
            try:
                samples.append(self._reader.read(line))
            except ValueError:
                malformed += 1
            if len(samples) > MAX_SAMPLES:
                raise PageError(
                    f"the page has more than {MAX_SAMPLES} samples; is this an exporter of one host?"
                )
        return Page(tuple(samples), matching, malformed)


def _text(raw: bytes) -> str:
    text = decode_page(raw)
    # The format ends each line, the last one too, so a missing end means missing figures.
    if not text.endswith("\n") and text.strip():
        raise PageError("the page is cut short: its last line has no end")
    return text
