"""A metrics page, from bytes to the few samples that are wanted.

A page is what another program wrote: it may be empty, cut short, HTML, binary or endless.
Everything here either gives samples or raises `PageError` with a cause for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from prometheus_client.parser import text_string_to_metric_families

MAX_PAGE_BYTES = 8 * 1024 * 1024
# The parser walks a line character by character, and label values may be hostile.
MAX_LINE_CHARS = 8192
MAX_LINES = 5000
_MAX_CACHED_CHARS = 512


class PageError(Exception):
    """A page that holds no metrics; the text says what it is instead."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page: `name{labels} value`; the value may be NaN or infinite."""

    name: str
    labels: Mapping[str, str]
    value: float


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
    text = _decode(raw)
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


def _decode(raw: bytes) -> str:
    if len(raw) > MAX_PAGE_BYTES:
        raise PageError(oversize(MAX_PAGE_BYTES))
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PageError("the page is not UTF-8 text; is this the engine's metrics address?") from error
    if text[:512].lstrip("\ufeff \t\r\n").startswith("<"):
        raise PageError("the page is HTML, not metrics; check the port and the path")
    return text


def oversize(limit: int) -> str:
    """The words for an answer of more than `limit` bytes."""
    size = f"{limit // 1024**2} MiB" if limit >= 1024**2 else f"{limit // 1024} KiB"
    return f"the answer is larger than {size}; it was not read to its end"


def _split(kept: Iterable[str], problems: list[str]) -> tuple[set[str], list[str]]:
    """The families that TYPE lines name, and the lines with figures."""
    families, figures = set(), []
    for line in kept:
        if line.startswith("# TYPE "):
            families.add(line.split(None, 3)[2])
        elif len(line) > MAX_LINE_CHARS:
            problems.append(f"a line of {_name(line)} is longer than {MAX_LINE_CHARS} characters")
        else:
            figures.append(line)
    return families, figures


def _read(figures: list[str], problems: list[str]) -> Iterator[Sample]:
    for line in figures:
        try:
            yield _sample(line)
        except (ValueError, IndexError, OverflowError):
            problems.append(f"a line of {_name(line)} cannot be read")


def _sample(line: str) -> Sample:
    """Read one line. Names and labels hardly change from page to page, so they are parsed once."""
    end = line.rfind("}") + 1
    value = line[end:].split()
    if not 0 < end <= _MAX_CACHED_CHARS or not 1 <= len(value) <= 2 or "_" in value[0]:
        return _parse_line(line)
    head = _parse_head(line[:end])
    return Sample(head.name, head.labels, float(value[0]))


@lru_cache(maxsize=4096)
def _parse_head(head: str) -> Sample:
    return _parse_line(f"{head} 0")


def _parse_line(line: str) -> Sample:
    for family in text_string_to_metric_families(line):
        for sample in family.samples:
            return Sample(sample.name, sample.labels, float(sample.value))
    raise ValueError("no sample")


def _name(line: str) -> str:
    return line.split("{", 1)[0].split(None, 1)[0]
