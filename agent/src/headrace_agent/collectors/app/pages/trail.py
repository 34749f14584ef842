"""Where the wanted lines of a page stand, so that they are found on the next one without a search.

A page of a busy engine has a hundred kilobytes, of which five are wanted, and differs from the one
before it in its values only. To go through all of it, page after page, is most of what it costs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

# Lines between two wanted ones may grow and shrink by the digits of their values.
_SLACK_BYTES: Final = 32
_SLACK_SHARE: Final = 8
# How much of the lines around a wanted one is looked at.
_SEEN_BYTES: Final = 64
_BEGINNING: Final = re.compile(rb"# [A-Z]*|[^{ ]*")

Span = tuple[int, int]


class _Step(NamedTuple):
    """One wanted line. `head`: from the end of the line before it to its value, or all of a line
    that has none. `gap`: how far that is from the end of the wanted line before. `before` and
    `after`: how the lines around it begin, where those are not wanted; empty where they are, and
    where there are none."""

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
            head = line if line.startswith(b"#") else line[: line.rindex(b" ") + 1]
            gap = begin - 1 - at
            before = _beginning(raw, raw.rfind(b"\n", 0, begin - 1) + 1) if gap else b""
            after = b"" if end + 1 in begins else _beginning(raw, end + 1)
            steps.append(_Step(b"\n" + head, gap, before, after))
            at = end
        self._steps = tuple(steps)
        self._ends_page = at == len(raw) - 1

    def follow(self, raw: bytes) -> list[bytes] | None:
        """The values on another page, b"" for a line without one; None where its lines are others."""
        values: list[bytes] = []
        at = -1
        for head, gap, before, after in self._steps:
            begin = _find(raw, head, before, at, gap)
            at = raw.find(b"\n", begin) if begin >= 0 else -1
            if at < 0 or (after and not raw.startswith(after, at + 1)):
                return None
            values.append(raw[begin:at])
        return None if self._ends_page and at != len(raw) - 1 else values


def _find(raw: bytes, head: bytes, before: bytes, at: int, gap: int) -> int:
    """Where the head ends that stands about `gap` after `at`; -1 where it does not."""
    if gap:
        slack = gap // _SLACK_SHARE + _SLACK_BYTES
        begin = raw.find(head, max(0, at + gap - slack), at + gap + slack + len(head))
        found = begin >= 0 and raw.startswith(before, raw.rfind(b"\n", 0, begin) + 1)
        return begin + len(head) if found else -1
    if at < 0:
        return len(head) - 1 if raw.startswith(head[1:]) else -1
    return at + len(head) if raw.startswith(head, at) else -1


def _beginning(raw: bytes, at: int) -> bytes:
    """How the line at `at` begins, as far as that is to be the same on the next page: a name, or a
    comment and its sort."""
    line = raw[at : at + _SEEN_BYTES].partition(b"\n")[0]
    begins = _BEGINNING.match(line)
    return begins[0] if begins is not None else b""
