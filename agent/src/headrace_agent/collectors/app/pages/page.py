"""A metrics page, from bytes to the few samples that are wanted.

A page is what another program wrote: it may be empty, cut short, HTML, binary or endless.
Everything here either gives samples or raises `PageError` with a cause for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace_agent.collectors.exposition import (
    MAX_LINE_CHARS,
    PageError,
    Sample,
    SampleReader,
    decode_page,
    line_name,
)

MAX_LINES = 2000


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
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        lines = rf"(?:{_any_of(self.samples)})[{{ \t][^\n]*"
        types = rf"# TYPE (?:{_any_of(self.samples.values())}) [^\n]*"
        object.__setattr__(self, "pattern", re.compile(rf"\n({lines}|{types})"))


def _any_of(names: Iterable[str]) -> str:
    """A pattern for any of the names; those that begin alike stand together, which is quicker."""
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(name[0], []).append(re.escape(name))
    return "|".join(f"(?:{'|'.join(group)})" for group in groups.values())


class PageReader:
    """Reads one engine's pages.

    Most of a page is as it was half a second ago: a line that was there gives the sample that it
    gave, and a page of the same lines is the page before.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._reader = SampleReader()
        self._lines: list[str] | None = None
        self._known: dict[str, Sample] = {}
        self._page = Page()

    def read(self, raw: bytes) -> Page:
        """Read the wanted samples of a page.

        A last line without its end is dropped: a figure cut in the middle is another figure.
        Raises PageError where the bytes are no metrics page at all, or one made to take long.
        """
        text = decode_page(raw)
        body, end, rest = text.rpartition("\n")
        lines: list[str] = self._wanted.pattern.findall(f"\n{body}") if end else []
        if len(lines) > MAX_LINES:
            raise PageError(f"the page has more than {MAX_LINES} lines of the families that are read from it")
        cut, empty = rest != "", not text or text.isspace()
        if lines != self._lines or (cut, empty) != (self._page.cut, self._page.empty):
            self._lines = None
            self._page = self._parse(lines, cut, empty)
            self._lines = lines
        return self._page

    def _parse(self, lines: Iterable[str], cut: bool, empty: bool) -> Page:
        problems = ["the page is cut short: its last line has no end and was dropped"] if cut else []
        families, figures = _split(lines, problems)
        self._reader.begin()
        samples = tuple(self._read(figures, problems))
        self._known = dict(zip(figures, samples, strict=True)) if len(figures) == len(samples) else {}
        families |= {self._wanted.samples[each.name] for each in samples if each.name in self._wanted.samples}
        return Page(samples, frozenset(families), tuple(dict.fromkeys(problems)), cut, empty)

    def _read(self, figures: Iterable[str], problems: list[str]) -> Iterator[Sample]:
        known = self._known
        for line in figures:
            try:
                yield known.get(line) or self._reader.read(line)
            except ValueError:
                problems.append(f"a line of {line_name(line)} cannot be read")


def _split(kept: Iterable[str], problems: list[str]) -> tuple[set[str], list[str]]:
    """The families that TYPE lines name, and the lines with figures."""
    families, figures = set(), []
    for line in kept:
        if line.startswith("# TYPE "):
            families.add(line.split(None, 3)[2])
        elif len(line) > MAX_LINE_CHARS:
            problems.append(f"a line of {line_name(line)} is longer than {MAX_LINE_CHARS} characters")
        else:
            figures.append(line)
    return families, figures
