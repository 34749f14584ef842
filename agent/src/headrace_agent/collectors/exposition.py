"""The Prometheus text format, read strictly and within bounds; every metrics page comes this way.

A page is what another program wrote: it may be empty, cut short, HTML, binary, endless, or made to
keep its reader busy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# Ten times what a whole host of busy engines or GPU instances writes.
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_PAGE_LINES: Final = 50_000
MAX_LINE_CHARS: Final = 2048
# All engines share an event loop, and label values may be made to take long.
MAX_NEW_CHARS: Final = 256 * 1024
MAX_KEPT_CHARS: Final = 1024 * 1024

# prometheus_client's parser goes through a line several times, in Python: a hostile page takes it
# a hundred times as long as these patterns, which look at each character once.
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*[ \t]*\{[ \t]*")
_LABEL: Final = re.compile(
    r"([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*\"([^\"\\]*(?:\\.[^\"\\]*)*)\"[ \t]*(?:,[ \t]*|(?=\}))"
)
# No text that was decoded from UTF-8 holds it.
_STAND_IN: Final = "\ud800"

SeriesKey = tuple[tuple[str, str], ...]


class PageError(Exception):
    """A page that holds no metrics; the text says what it is instead."""


class Labels(dict[str, str]):
    """The labels of one series, not to be changed: many samples share them."""

    __slots__ = ("_keys",)

    def __init__(self, labels: dict[str, str]) -> None:
        super().__init__(labels)
        self._keys: dict[str, SeriesKey] = {}

    def key(self, without: str = "") -> SeriesKey:
        """The sorted labels, one of them left out; worked out once."""
        if without not in self._keys:
            self._keys[without] = tuple(sorted(item for item in self.items() if item[0] != without))
        return self._keys[without]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page: `name{labels} value`; the value may be NaN or infinite."""

    name: str
    labels: Labels
    value: float


def oversize(limit: int) -> str:
    """The words for an answer of more than `limit` bytes."""
    return f"the answer is larger than {_size(limit)}; it was not read to its end"


def _size(count: int) -> str:
    return f"{count // 1024**2} MiB" if count >= 1024**2 else f"{count // 1024} KiB"


def decode_page(raw: bytes) -> str:
    """The page as text. Raises PageError where it is too large, not UTF-8, or HTML."""
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
    if text.count("\n") > MAX_PAGE_LINES:
        raise PageError(f"the page has more than {MAX_PAGE_LINES} lines; is this a metrics page?")
    return text


def line_name(line: str) -> str:
    """The metric that a line with a figure names."""
    return line.split("{", 1)[0].split(None, 1)[0]


class SampleReader:
    """Reads the lines of one source's pages.

    Names and labels stay the same from page to page and cost most of the reading, so the part
    before the value is read once and remembered. How much of a page may be new is bounded: a page
    with more is refused, and since what was read of it is remembered, one that keeps its series is
    read to its end after a few tries.
    """

    def __init__(self) -> None:
        self._heads: dict[str, tuple[str, Labels]] = {}
        self._kept = 0
        self._left = MAX_NEW_CHARS

    def begin(self) -> None:
        """A new page."""
        self._left = MAX_NEW_CHARS

    def read(self, line: str) -> Sample:
        """Read one line with a figure.

        Raises ValueError where it cannot be read, and PageError where too much of the page is new.
        """
        if len(line) > MAX_LINE_CHARS:
            raise ValueError(f"longer than {MAX_LINE_CHARS} characters: {line[:80]!r}")
        end = line.rfind("}") + 1
        words = line[end:].split() if end else line.split()[1:]
        # Python's float takes 1_000, the format does not.
        if not 1 <= len(words) <= 2 or "_" in words[0] or (not end and "{" in line):
            raise ValueError(f"not a sample: {line[:80]!r}")
        value = float(words[0])
        if not end:
            return Sample(line_name(line), _NONE, value)
        name, labels = self._heads.get(line[:end]) or self._learn(line[:end])
        return Sample(name, labels, value)

    def _learn(self, head: str) -> tuple[str, Labels]:
        self._left -= len(head)
        if self._left < 0:
            raise PageError(
                f"the page has more than {_size(MAX_NEW_CHARS)} of series that were not there before"
            )
        known = _parse_head(head)
        if self._kept + len(head) > MAX_KEPT_CHARS:
            self._heads.clear()
            self._kept = 0
        self._heads[head] = known
        self._kept += len(head)
        return known


_NONE: Final = Labels({})


def _parse_head(head: str) -> tuple[str, Labels]:
    """The name and the labels of `name{labels}`. Raises ValueError."""
    name = _NAME.match(head)
    if name is None:
        raise ValueError(f"no name: {head[:80]!r}")
    labels: dict[str, str] = {}
    at, last = name.end(), len(head) - 1
    while at < last:
        label = _LABEL.match(head, at)
        if label is None or label[1] in labels:
            raise ValueError(f"no label, or one that stands twice: {head[at : at + 80]!r}")
        labels[label[1]] = _unescape(label[2])
        at = label.end()
    if at != last:
        raise ValueError(f"more than labels: {head[:80]!r}")
    return name[0].rstrip(" \t{"), Labels(labels)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    text = text.replace("\\\\", _STAND_IN)
    return text.replace('\\"', '"').replace("\\n", "\n").replace(_STAND_IN, "\\")
