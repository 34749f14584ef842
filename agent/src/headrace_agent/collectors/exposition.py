"""The Prometheus text format, read strictly and within bounds; every metrics page comes this way.

A page is what another program wrote: it may be empty, cut short, HTML, binary, endless, or made to
keep its reader busy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Final, NamedTuple

# Ten times what a whole host of busy engines or GPU instances writes.
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
MAX_PAGE_LINES: Final = 50_000
MAX_LINE_CHARS: Final = 2048
# All engines share an event loop, and label values may be made to take long.
MAX_NEW_BYTES: Final = 256 * 1024
MAX_KEPT_BYTES: Final = 1024 * 1024

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


class Sample(NamedTuple):
    """One line of a page: `name{labels} value`; the value may be NaN or infinite."""

    name: str
    labels: Labels
    value: float


def oversize(limit: int) -> str:
    """The words for an answer of more than `limit` bytes."""
    return f"the answer is larger than {_size(limit)}; it was not read to its end"


def _size(count: int) -> str:
    return f"{count // 1024**2} MiB" if count >= 1024**2 else f"{count // 1024} KiB"


def check_page(raw: bytes) -> None:
    """Raise PageError where a page is too large, not UTF-8, HTML, or of very many lines."""
    check_text(raw)
    check_lines(raw)


def check_text(raw: bytes) -> None:
    """Raise PageError where a page is too large, not UTF-8, or HTML."""
    if len(raw) > MAX_PAGE_BYTES:
        raise PageError(oversize(MAX_PAGE_BYTES))
    if not raw.isascii():
        _require_utf8(raw)
    if raw[:512].decode("utf-8", "ignore").lstrip("\ufeff \t\r\n").startswith("<"):
        raise PageError("the page is HTML, not metrics; check the port and the path")


def check_lines(raw: bytes) -> None:
    """Raise PageError where a page has so many lines that it would take long to go through them."""
    if count_lines(raw) > MAX_PAGE_LINES:
        raise PageError(f"the page has more than {MAX_PAGE_LINES} lines; is this a metrics page?")


def count_lines(raw: bytes) -> int:
    """How many lines end on a page. `bytes.count` looks at each byte by itself, which takes ten times
    as long."""
    return len(raw) - len(raw.replace(b"\n", b""))


def _require_utf8(raw: bytes) -> None:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PageError(
            f"the page is not UTF-8 text (byte {error.start}); check that it is a metrics address"
        ) from error


def decode_page(raw: bytes) -> str:
    """The page as text. Raises PageError as `check_page` does."""
    check_page(raw)
    return raw.decode("utf-8")


def line_name(line: bytes) -> str:
    """The metric that a line with a figure names."""
    return line.split(b"{", 1)[0].split(None, 1)[0].decode("utf-8", "replace")


def too_long(line: bytes) -> bool:
    """Whether a line has more than MAX_LINE_CHARS characters."""
    return len(line) > MAX_LINE_CHARS and len(line.decode("utf-8", "replace")) > MAX_LINE_CHARS


def any_of(names: Iterable[str]) -> str:
    """A pattern for any of the names; what they begin with in common is looked at once."""
    return _any_of(sorted(set(names)))


def _any_of(ends: Collection[str]) -> str:
    """A pattern for any of some different ends of names, in their order."""
    longer = [
        re.escape(first) + _any_of([end[1:] for end in group])
        for first, group in groupby((end for end in ends if end), key=lambda end: end[0])
    ]
    branches = longer if all(ends) else [*longer, ""]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


class SampleReader:
    """Reads the lines of one source's pages.

    Names and labels stay the same from page to page and cost most of the reading, so the part
    before the value is read once and remembered. How much of a page may be new is bounded: a page
    with more is refused, and since what was read of it is remembered, one that keeps its series is
    read to its end after a few tries.
    """

    def __init__(self) -> None:
        self._heads: dict[bytes, tuple[str, Labels]] = {}
        # By the text between the braces: many series have the same labels.
        self._labels: dict[str, Labels] = {}
        self._kept = 0
        self._left = MAX_NEW_BYTES

    def begin(self) -> None:
        """A new page."""
        self._left = MAX_NEW_BYTES

    def read(self, line: bytes) -> Sample:
        """Read one line with a figure, which is UTF-8.

        Raises ValueError where it cannot be read, and PageError where too much of the page is new.
        """
        head, _, value = line.rpartition(b" ")
        known = self._heads.get(head)
        # Python's float takes 1_000, the format does not.
        if known is not None and len(line) <= MAX_LINE_CHARS and b"_" not in value:
            try:
                return Sample(known[0], known[1], float(value))
            except ValueError:
                pass  # a time stamp may follow the value
        return self._read_any(line)

    def _read_any(self, line: bytes) -> Sample:
        """Read a line that is not simply `known head, space, value`."""
        if too_long(line):
            raise ValueError(f"longer than {MAX_LINE_CHARS} characters: {line[:80]!r}")
        end = line.rfind(b"}") + 1
        words = line[end:].split() if end else line.split()[1:]
        if not 1 <= len(words) <= 2 or b"_" in words[0] or (not end and b"{" in line):
            raise ValueError(f"not a sample: {line[:80]!r}")
        value = float(words[0])
        if not end:
            return Sample(line_name(line), _NONE, value)
        name, labels = self._heads.get(line[:end]) or self._learn(line[:end])
        return Sample(name, labels, value)

    def _learn(self, head: bytes) -> tuple[str, Labels]:
        self._left -= len(head)
        if self._left < 0:
            raise PageError(
                f"the page has more than {_size(MAX_NEW_BYTES)} of series that were not there before"
            )
        text = head.decode("utf-8")
        inside = text.partition("{")[2]
        name, labels = _parse_head(text)
        if self._kept + len(head) > MAX_KEPT_BYTES:
            self._heads.clear()
            self._labels.clear()
            self._kept = 0
        known = name, self._labels.setdefault(inside, labels)
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
