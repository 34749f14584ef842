"""A metrics page, from bytes to the few samples that are wanted.

A page is what another program wrote: it may be empty, cut short, HTML, binary or endless.
Everything here either gives samples or raises `PageError` with a cause for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headrace_agent.collectors.app.pages.trail import Span, Trail
from headrace_agent.collectors.exposition import (
    MAX_LINE_CHARS,
    PageError,
    Sample,
    SampleReader,
    any_of,
    check_lines,
    check_page,
    check_text,
    line_name,
    too_long,
)

MAX_LINES = 2000
# A new family among others that are not wanted is seen after so many pages; all else at once.
SEARCH_EVERY: Final = 8
_VALUE_BYTES: Final = 64
_BARE_NAME: Final = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_CUT = "the page is cut short: its last line has no end and was dropped"


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted part of a page.

    `families` are the wanted names that the page has, by a TYPE line or by a sample: a family
    whose series have not appeared yet is there, and has no samples. `problems` says what could
    not be read, in words that do not vary from page to page. `cut`: the page ends in the middle
    of a line, so what is absent may have been there. `empty`: not one line on it.
    """

    samples: tuple[Sample, ...] = ()
    families: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    cut: bool = False
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines to keep: `samples` maps the name of a sample to the name of its family.

    `pattern` finds such a line, without its end, after the end of the line before.
    """

    samples: Mapping[str, str]
    pattern: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        lines = rf"(?:{any_of(self.samples)})[{{ \t][^\n]*"
        types = rf"# TYPE (?:{any_of(self.samples.values())}) [^\n]*"
        object.__setattr__(self, "pattern", re.compile(rf"\n({lines}|{types})".encode()))

    def find(self, raw: bytes) -> list[Span]:
        """From where to where such lines go, in a page's order; one without its end is none."""
        first, last = raw.find(b"\n"), raw.rfind(b"\n")
        found = [(0, first)] if first > 0 and self.pattern.match(b"\n" + raw[:first]) else []
        return found + [match.span(1) for match in self.pattern.finditer(raw, max(first, 0), max(last, 0))]


def bare_page(raw: bytes) -> Page:
    """A page of which nothing is wanted. Raises PageError where the bytes are no metrics page at all."""
    check_page(raw)
    cut = _is_cut(raw)
    return Page(problems=(_CUT,) if cut else (), cut=cut, empty=_is_empty(raw))


def _is_cut(raw: bytes) -> bool:
    return raw != b"" and not raw.endswith(b"\n")


def _is_empty(raw: bytes) -> bool:
    return not raw or raw.isspace()


class PageReader:
    """Reads one engine's pages.

    Most of a page is as it was half a second ago. Its wanted lines are looked for where they stood;
    where they do not, and every few pages in any case, it is searched for them. A line that is as it
    was gives the sample that it gave, and a page of the same lines is the page before.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._reader = SampleReader()
        self._page = Page()
        self._lines: list[bytes] | None = None
        self._trail: Trail | None = None
        self._followed = 0
        # Of each line on the trail: its value, and its sample unless it has none.
        self._values: list[bytes] = []
        self._samples: list[Sample | None] = []

    def read(self, raw: bytes) -> Page:
        """Read the wanted samples of a page.

        A last line without its end is dropped: a figure cut in the middle is another figure.
        Raises PageError where the bytes are no metrics page at all, or one made to take long.
        """
        check_text(raw)
        return self._follow(raw) or self._search(raw)

    def _follow(self, raw: bytes) -> Page | None:
        """The page, if it has the lines of the one before; their values may be others."""
        if self._trail is None or self._followed >= SEARCH_EVERY or _is_cut(raw):
            return None
        values = self._trail.follow(raw)
        if values is None:
            return None
        self._followed += 1
        if values == self._values:
            return self._page
        before = zip(self._samples, self._values, values, strict=True)
        try:
            samples = [known if new == old else _again(known, new) for known, old, new in before]
        except ValueError:
            return None
        self._samples, self._values, self._lines = samples, values, None
        self._page = replace(self._page, samples=tuple(each for each in samples if each is not None))
        return self._page

    def _search(self, raw: bytes) -> Page:
        check_lines(raw)
        spans = self._wanted.find(raw)
        if len(spans) > MAX_LINES:
            raise PageError(f"the page has more than {MAX_LINES} lines of the families that are read from it")
        lines = [raw[begin:end] for begin, end in spans]
        cut, empty = _is_cut(raw), _is_empty(raw)
        self._trail, self._followed = None, 0
        if lines != self._lines or (cut, empty) != (self._page.cut, self._page.empty):
            self._lines = None
            self._page = self._parse(lines, cut, empty)
            self._lines = lines
        self._lay_trail(raw, spans, lines)
        return self._page

    def _lay_trail(self, raw: bytes, spans: list[Span], lines: list[bytes]) -> None:
        """Remember where the lines stand, if each is as most are."""
        samples = iter(self._page.samples)
        figures = [not line.startswith(b"#") for line in lines]
        unread = sum(figures) != len(self._page.samples)
        if not lines or self._page.cut or unread or not all(map(_is_plain, lines)):
            return
        self._trail = Trail(raw, spans)
        self._samples = [next(samples) if figure else None for figure in figures]
        self._values = [
            line.rpartition(b" ")[2] if figure else b"" for line, figure in zip(lines, figures, strict=True)
        ]

    def _parse(self, lines: Iterable[bytes], cut: bool, empty: bool) -> Page:
        problems = [_CUT] if cut else []
        families, figures = _split(lines, problems)
        self._reader.begin()
        samples = tuple(self._read(figures, problems))
        families |= {self._wanted.samples[each.name] for each in samples if each.name in self._wanted.samples}
        return Page(samples, frozenset(families), tuple(dict.fromkeys(problems)), cut, empty)

    def _read(self, figures: Iterable[bytes], problems: list[str]) -> Iterator[Sample]:
        for line in figures:
            try:
                yield self._reader.read(line)
            except ValueError:
                problems.append(f"a line of {line_name(line)} cannot be read")


def _again(sample: Sample | None, value: bytes) -> Sample:
    """A sample with another value. Raises ValueError where that is none."""
    if sample is None or b"_" in value or len(value) > _VALUE_BYTES:
        raise ValueError("not simply a value")
    return Sample(sample.name, sample.labels, float(value))


def _is_plain(line: bytes) -> bool:
    """Whether a line is a comment, or a name with or without labels, a space and a value."""
    head = line.rpartition(b" ")[0]
    return line.startswith(b"#") or head.endswith(b"}") or _BARE_NAME.fullmatch(head) is not None


def _split(kept: Iterable[bytes], problems: list[str]) -> tuple[set[str], list[bytes]]:
    """The families that TYPE lines name, and the lines with figures."""
    families, figures = set(), []
    for line in kept:
        if line.startswith(b"# TYPE "):
            families.add(line.split(None, 3)[2].decode("utf-8"))
        elif too_long(line):
            problems.append(f"a line of {line_name(line)} is longer than {MAX_LINE_CHARS} characters")
        else:
            figures.append(line)
    return families, figures
