"""A metrics page, from bytes to the few samples that are wanted.

A page is what another program wrote: it may be empty, cut short, HTML, binary or endless.
Everything here either gives samples or raises `PageError` with a cause for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace_agent.collectors.exposition import (
    MAX_LINE_CHARS,
    Labels,
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
from headrace_agent.collectors.trail import Follower, Span

MAX_LINES = 2000
_CUT = "the page is cut short: its last line has no end and was dropped"


@dataclass(frozen=True, slots=True)
class Layout:
    """What stays from page to page: the series in their order, and the families.

    `families` are the wanted names that the page has, by a TYPE line or by a sample: a family
    whose series have not appeared yet is there, and has no series. `memo` is for what others work
    out about pages of this layout; it lives as long as there are such.
    """

    series: tuple[tuple[str, Labels], ...] = ()
    families: frozenset[str] = frozenset()
    memo: dict[str, object] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted part of a page.

    `values` are those of the layout's series; pages of the same series that were read one after the
    other share one layout. `problems` says what could not be read, in words that do not vary from
    page to page. `cut`: the page ends in the middle of a line, so what is absent may have been there.
    `empty`: not one line on it.
    """

    layout: Layout = field(default_factory=Layout)
    values: tuple[float, ...] = ()
    problems: tuple[str, ...] = ()
    cut: bool = False
    empty: bool = False

    @property
    def families(self) -> frozenset[str]:
        """The wanted families that the page has."""
        return self.layout.families

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The wanted samples, in the page's order."""
        return tuple(
            Sample(name, labels, value)
            for (name, labels), value in zip(self.layout.series, self.values, strict=True)
        )


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

    Most of a page is as it was half a second ago: its wanted lines are looked for where they stood,
    and a page of the same lines is the page before.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._reader = SampleReader()
        self._page = Page()
        self._lines: list[bytes] | None = None
        self._follower = Follower(wanted.find)

    def read(self, raw: bytes) -> Page:
        """Read the wanted samples of a page.

        A last line without its end is dropped: a figure cut in the middle is another figure.
        Raises PageError where the bytes are no metrics page at all, or one made to take long.
        """
        check_text(raw)
        values = self._follower.follow(raw)
        if values is None:
            return self._search(raw)
        if values is not self._page.values:
            self._lines = None
            self._page = replace(self._page, values=values)
        return self._page

    def _search(self, raw: bytes) -> Page:
        check_lines(raw)
        spans = self._wanted.find(raw)
        if len(spans) > MAX_LINES:
            raise PageError(f"the page has more than {MAX_LINES} lines of the families that are read from it")
        lines = [raw[begin:end] for begin, end in spans]
        cut, empty = _is_cut(raw), _is_empty(raw)
        self._follower.forget()
        if lines != self._lines or (cut, empty) != (self._page.cut, self._page.empty):
            self._lines = None
            self._page = self._parse(lines, cut, empty)
            self._lines = lines
        self._follower.start(raw, spans, self._page.values)
        return self._page

    def _parse(self, lines: Iterable[bytes], cut: bool, empty: bool) -> Page:
        problems = [_CUT] if cut else []
        families, figures = _split(lines, problems)
        self._reader.begin()
        samples = list(self._read(figures, problems))
        families |= {self._wanted.samples[each.name] for each in samples if each.name in self._wanted.samples}
        layout = Layout(tuple((each.name, each.labels) for each in samples), frozenset(families))
        if layout == self._page.layout:
            layout = self._page.layout
        values = tuple(each.value for each in samples)
        return Page(layout, values, tuple(dict.fromkeys(problems)), cut, empty)

    def _read(self, figures: Iterable[bytes], problems: list[str]) -> Iterator[Sample]:
        for line in figures:
            try:
                yield self._reader.read(line)
            except ValueError:
                problems.append(f"a line of {line_name(line)} cannot be read")


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
