"""A DCGM exporter's page, from bytes to the samples of its wanted fields."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from headrace_agent.collectors.exposition import PageError, Sample, SampleReader, any_of, check_page

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
        self._prefixed = re.compile(rf"\n[ \t]*{re.escape(prefix)}".encode())
        self._wanted = re.compile(rf"\n[ \t]*((?:{any_of(wanted)})(?:[{{ \t\r][^\n]*)?)(?=\n)".encode())
        self._reader = SampleReader()

    def read(self, raw: bytes) -> Page:
        """The samples of a page; an empty page is a Page without samples.

        Raises PageError where the bytes are too many, not UTF-8, HTML, or cut short, or where the
        page is made to take long.
        """
        check_page(raw)
        # The format ends each line, the last one too, so a missing end means missing figures.
        if not raw.endswith(b"\n") and raw.strip():
            raise PageError("the page is cut short: its last line has no end")
        page = b"\n" + raw
        self._reader.begin()
        samples: list[Sample] = []
        malformed = 0
        for line in self._wanted.findall(page):
            try:
                samples.append(self._reader.read(line.rstrip()))
            except ValueError:
                malformed += 1
            if len(samples) > MAX_SAMPLES:
                raise PageError(
                    f"the page has more than {MAX_SAMPLES} samples; is this an exporter of one host?"
                )
        return Page(tuple(samples), len(self._prefixed.findall(page)), malformed)
