"""A DCGM exporter's page, from bytes to the samples of its wanted fields."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from headrace_agent.collectors.exposition import (
    PageError,
    Sample,
    SampleReader,
    any_of,
    check_lines,
    check_text,
)
from headrace_agent.collectors.trail import Follower, Span

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
        # An XID's family is there from the first XID on, which is to be told of at once.
        self._follower = Follower(self._find, by_lines=True)
        self._page = Page((), 0, 0)

    def read(self, raw: bytes) -> Page:
        """The samples of a page; an empty page is a Page without samples.

        Raises PageError where the bytes are too many, not UTF-8, HTML, or cut short, or where the
        page is made to take long.
        """
        check_text(raw)
        # The format ends each line, the last one too, so a missing end means missing figures.
        if not raw.endswith(b"\n") and raw.strip():
            raise PageError("the page is cut short: its last line has no end")
        values = self._follower.follow(raw)
        if values is None:
            return self._search(raw)
        samples = [
            Sample(each.name, each.labels, value)
            for each, value in zip(self._page.samples, values, strict=True)
        ]
        self._page = replace(self._page, samples=tuple(samples))
        return self._page

    def _search(self, raw: bytes) -> Page:
        check_lines(raw)
        self._follower.forget()
        self._reader.begin()
        samples: list[Sample] = []
        malformed = 0
        spans = self._find(raw)
        for begin, end in spans:
            try:
                samples.append(self._reader.read(raw[begin:end].rstrip()))
            except ValueError:
                malformed += 1
            if len(samples) > MAX_SAMPLES:
                raise PageError(
                    f"the page has more than {MAX_SAMPLES} samples; is this an exporter of one host?"
                )
        self._page = Page(tuple(samples), len(self._prefixed.findall(b"\n" + raw)), malformed)
        self._follower.start(raw, spans, tuple([each.value for each in samples]))
        return self._page

    def _find(self, raw: bytes) -> list[Span]:
        """From where to where the wanted lines go."""
        # As if a line ended before the page.
        return [(match.start(1) - 1, match.end(1) - 1) for match in self._wanted.finditer(b"\n" + raw)]
