"""A metrics page, from bytes to the few samples that are wanted.

A page is what another program wrote: it may be empty, cut short, HTML, binary or endless.
Everything here either gives samples or raises `PageError` with a cause for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace_agent.collectors.exposition import (
    MAX_LINE_CHARS,
    PageError,
    Sample,
    decode_page,
    line_name,
    read_sample,
)

MAX_LINES = 5000


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
    """Which lines to keep: `samples` maps the name of a sample to the name of its family."""

    samples: Mapping[str, str]
    prefixes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        lines = [name + end for name in self.samples for end in "{ \t"]
        types = [f"# TYPE {family} " for family in set(self.samples.values())]
        object.__setattr__(self, "prefixes", tuple(lines + types))


def parse(raw: bytes, wanted: Wanted) -> Page:
    """Read the wanted samples of a page.

    A last line without its end is dropped: a figure cut in the middle is another figure.
    Raises PageError where the bytes are no metrics page at all.
    """
    text = decode_page(raw)
    lines = text.split("\n")
    problems: list[str] = []
    cut = lines.pop() != ""
    if cut:
        problems.append("the page is cut short: its last line has no end and was dropped")
    kept = [line for line in lines if line.startswith(wanted.prefixes)]
    if len(kept) > MAX_LINES:
        raise PageError(f"the page has more than {MAX_LINES} lines of the families that are read from it")
    families, figures = _split(kept, problems)
    samples = tuple(_read(figures, problems))
    families |= {wanted.samples[sample.name] for sample in samples if sample.name in wanted.samples}
    return Page(samples, frozenset(families), tuple(dict.fromkeys(problems)), cut, not text.strip())


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


def _read(figures: list[str], problems: list[str]) -> Iterator[Sample]:
    for line in figures:
        try:
            yield read_sample(line)
        except ValueError:
            problems.append(f"a line of {line_name(line)} cannot be read")
