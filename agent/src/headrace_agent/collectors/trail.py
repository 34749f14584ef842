"""Where the wanted lines of a page stand, so that they are found on the next one without a search.

A page of a busy engine has a hundred kilobytes, of which five are wanted, and differs from the one
before it in its values only. To go through all of it, page after page, is most of what it costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headrace_agent.collectors.exposition import check_lines, count_lines

SEARCH_EVERY: Final = 16
# Lines between two wanted ones may grow and shrink by the digits of their values.
_SLACK_BYTES: Final = 32
_SLACK_SHARE: Final = 8
# How much of the lines around a wanted one is looked at.
_SEEN_BYTES: Final = 64
_BEGINNING: Final = re.compile(rb"# [A-Z]*|[^{ ]*")

_VALUE_BYTES: Final = 64
_BARE_NAME: Final = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")

Span = tuple[int, int]


class Follower:
    """Reads the pages of one source that have the lines of the page before.

    `find` searches a page for its wanted lines. That is done every SEARCH_EVERY pages all the same:
    a new family among others that are not wanted is seen by then, and all else at once. With
    `by_lines` it is done wherever the number of lines is another, so that such a family is seen at
    once too; to count them takes as long as all the rest.
    """

    def __init__(self, find: Callable[[bytes], list[Span]], by_lines: bool = False) -> None:
        self._find = find
        self._by_lines = by_lines
        self._lines = 0
        self._trail: Trail | None = None
        self._followed = 0
        self._written: list[bytes] = []
        self._values: tuple[float, ...] = ()

    def forget(self) -> None:
        """Follow no page until `start`."""
        self._trail = None

    def start(self, raw: bytes, spans: Sequence[Span], values: tuple[float, ...]) -> None:
        """Follow from a page on that was searched and read, if its wanted lines are as most are.

        `values` are those of its lines with a figure.
        """
        lines = [raw[begin:end] for begin, end in spans]
        figures = [line for line in lines if not line.startswith(b"#")]
        plain = lines and len(figures) == len(values) and all(map(_is_plain, figures))
        self._trail = Trail(raw, spans) if plain and raw.endswith(b"\n") else None
        self._followed = 0
        self._lines = count_lines(raw)
        self._written = [line.rpartition(b" ")[2] for line in figures]
        self._values = values

    def follow(self, raw: bytes) -> tuple[float, ...] | None:
        """The values of the next page, the same object if they are the same; None where it has to be
        searched. Raises PageError where it has very many lines."""
        if self._trail is None or not raw.endswith(b"\n"):
            return None
        if self._by_lines and count_lines(raw) != self._lines:
            return None
        written = self._trail.follow(raw)
        if written is None or not self._is_all(raw, self._trail):
            return None
        if written != self._written:
            values = self._read(written)
            if values is None:
                return None
            self._written, self._values = written, values
        return self._values

    def _is_all(self, raw: bytes, trail: Trail) -> bool:
        """Whether a page has no more wanted lines than the trail."""
        self._followed += 1
        if self._followed < SEARCH_EVERY:
            return True
        self._followed = 0
        check_lines(raw)
        return len(self._find(raw)) == len(trail)

    def _read(self, written: Sequence[bytes]) -> tuple[float, ...] | None:
        """The values; None where one is not simply a number."""
        together = b" ".join(written)
        # Python's float takes 1_000, the format does not.
        if b"_" in together or len(together) > _VALUE_BYTES * len(written):
            return None
        before = zip(self._written, self._values, written, strict=True)
        try:
            return tuple([value if new == old else float(new) for old, value, new in before])
        except ValueError:
            return None


class _Step(NamedTuple):
    """One wanted line. `figure`: whether it has a value, or is a comment. `head`: from the end of the
    line before it to its value, or all of it. `gap`: how far that is from the end of the wanted line
    before. `before` and `after`: how the lines around it begin, where those are not wanted; empty
    where they are, and where there are none."""

    figure: bool
    head: bytes
    gap: int
    before: bytes
    after: bytes


class Trail:
    """The wanted lines of one page: `spans` says from where to where each goes, without its end.

    A line with a figure is `name value` or `name{labels} value`. What stood before and after a
    wanted line must stand there on the next page too: new series stand among those of their family.
    """

    def __init__(self, raw: bytes, spans: Sequence[Span]) -> None:
        begins = {begin for begin, _ in spans}
        steps: list[_Step] = []
        at = -1  # as if a line ended before the page
        for begin, end in spans:
            line = raw[begin:end]
            figure = not line.startswith(b"#")
            head = line[: line.rindex(b" ") + 1] if figure else line
            gap = begin - 1 - at
            before = _beginning(raw, raw.rfind(b"\n", 0, begin - 1) + 1) if gap else b""
            after = b"" if end + 1 in begins else _beginning(raw, end + 1)
            steps.append(_Step(figure, b"\n" + head, gap, before, after))
            at = end
        self._steps = tuple(steps)
        self._ends_page = at == len(raw) - 1

    def __len__(self) -> int:
        return len(self._steps)

    def follow(self, raw: bytes) -> list[bytes] | None:
        """The values on another page as it writes them; None where its lines are others."""
        values: list[bytes] = []
        at = -1
        for figure, head, gap, before, after in self._steps:
            if gap or at < 0:
                begin = _find(raw, head, before, at, gap)
            else:
                begin = at + len(head) if raw.startswith(head, at) else -1
            at = raw.find(b"\n", begin) if begin >= 0 else -1
            if at < 0 or (after and not raw.startswith(after, at + 1)):
                return None
            if figure:
                values.append(raw[begin:at])
            elif at != begin:
                return None
        return None if self._ends_page and at != len(raw) - 1 else values


def _is_plain(line: bytes) -> bool:
    """Whether a line is a name with or without labels, a space and a value."""
    head, _, value = line.rpartition(b" ")
    return value != b"" and (head.endswith(b"}") or _BARE_NAME.fullmatch(head) is not None)


def _find(raw: bytes, head: bytes, before: bytes, at: int, gap: int) -> int:
    """Where the head ends that stands about `gap` after `at`, or begins the page; -1 where it does not."""
    if not gap:  # on the first line, which has no end of a line before it
        return len(head) - 1 if raw.startswith(head[1:]) else -1
    slack = gap // _SLACK_SHARE + _SLACK_BYTES
    begin = raw.find(head, max(0, at + gap - slack), at + gap + slack + len(head))
    found = begin >= 0 and raw.startswith(before, raw.rfind(b"\n", 0, begin) + 1)
    return begin + len(head) if found else -1


def _beginning(raw: bytes, at: int) -> bytes:
    """How the line at `at` begins, as far as that is to be the same on the next page: a name, or a
    comment and its sort."""
    line = raw[at : at + _SEEN_BYTES].partition(b"\n")[0]
    begins = _BEGINNING.match(line)
    return begins[0] if begins is not None else b""
